package rbac_test

// certificateBinding is of the Role for the webhooks' own certificate.
const certificateBinding = "spot-training-operator-webhook-certificate/spot-training-operator-system"

// exceptions are all that is granted although no request in the audit log shows that it is needed, each with its reason.
var exceptions = []exception{
	{
		access: access{group: "apps", resource: "daemonsets", verb: "create"},
		reason: "to apply an object that is not there asks for it, besides the patch; what a handler asks is not logged",
	},
	{
		access: access{group: "apps", resource: "deployments", verb: "create"},
		reason: "the same, for pooled workers",
	},
	{
		access: access{group: "aiplatform.example.com", resource: "aijobqueues", verb: "work"},
		reason: "pooled workers are given it, and no user can grant what it lacks; what is asked for that is not logged",
	},
	namesUsers,
	{
		access: access{group: "ml.example.com", resource: "trainingjobs/finalizers", verb: "update"},
		reason: "the admission plugin OwnerReferencesPermissionEnforcement (on in OpenShift) asks for it when a child is created " +
			"whose owner reference blocks the owner's deletion; what a plugin asks is not logged",
	},
	{
		access: access{group: "training.training.dcnlab.com", resource: "spotinstancejobs/finalizers", verb: "update"},
		reason: "the same, for the Jobs and CheckpointBackups of a SpotInstanceJob",
	},
	{
		access: access{group: "aiplatform.example.com", resource: "aijobs/finalizers", verb: "update"},
		reason: "the same, for the pods and Services of an AIJob",
	},
	{
		access: access{group: "aiplatform.example.com", resource: "agentworkflows/finalizers", verb: "update"},
		reason: "the same, for the AIJobs of an AgentWorkflow",
	},
	{
		access: access{group: "certificates.k8s.io", resource: "signers", verb: "approve", name: "kubernetes.io/kube-apiserver-client-kubelet"},
		reason: "the admission plugin CertificateApproval asks for it when a request is approved; what a plugin asks is not logged",
		shared: "spot-training-operator-node-join",
	},
	{
		access: access{resource: "secrets", verb: "get", name: "spot-training-operator-webhook-certificate"},
		reason: "the manager's ClusterRole gives it, too, for the Secrets of SpotInstanceVMs", shared: certificateBinding,
	},
	{
		access: access{resource: "secrets", verb: "create"},
		reason: "the Role for the keys of instances gives it, too", shared: certificateBinding,
	},
	{
		access: access{resource: "secrets", verb: "create"},
		reason: "the Role for the webhooks' certificate gives it, too", shared: "spot-training-operator-node-join-rolebinding/spot-training-operator-system",
	},
}

// namesUsers is granted to the job service, too.
var namesUsers = exception{
	access: access{group: "aiplatform.example.com", resource: "aijobs/user", verb: "update"},
	reason: "the policy about the user of a job asks for it; what a policy asks is not logged",
}

// undriven are calls of the API server that no scenario makes, as METHOD in FUNCTION of FILE, each with its reason.
var undriven = map[string]string{
	"Get in Get of internal/checkpointbackup/client.go":                   "only the agent for container checkpoints reads one, with a service account of its own",
	"List in observeUnseenPods of controllers/trainingjob/observe.go":     behind,
	"List in observeUnseenPods of controllers/spotinstancejob/observe.go": behind,
}

// behind is why nothing makes a call that does what the manager may do by its cache as well.
const behind = "only a cache of pods that is behind that of Jobs leads to it, and the watches of the cache need the same right"
