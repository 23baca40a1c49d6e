package rbac_test

// exceptions are all that is granted although no request in the audit log shows that it is needed, each with its reason.
var exceptions = []exception{
	{
		access{group: "apps", resource: "daemonsets", verb: "create"},
		"to apply an object that is not there asks for it, besides the patch; what a handler asks is not logged",
	},
	{
		access{group: "ml.example.com", resource: "trainingjobs/finalizers", verb: "update"},
		"the admission plugin OwnerReferencesPermissionEnforcement (on in OpenShift) asks for it when a child is created " +
			"whose owner reference blocks the owner's deletion; what a plugin asks is not logged",
	},
	{
		access{group: "training.training.dcnlab.com", resource: "spotinstancejobs/finalizers", verb: "update"},
		"the same, for the Jobs and CheckpointBackups of a SpotInstanceJob",
	},
}

// undriven are calls of the API server that no scenario makes, as METHOD in FUNCTION of FILE, each with its reason.
var undriven = map[string]string{}
