package v1alpha1

// Labels of pods, nodes and instances.
const (
	// LabelSpotInstanceVM is on pods for which instances may be created, on the nodes that these instances became and
	// on the Secrets of their tokens: the name of the SpotInstanceVM, which is in the pod's namespace.
	LabelSpotInstanceVM = "training.dcnlab.com/spot-instance-vm"
	// LabelSpotInstanceVMNamespace is on those nodes: the namespace of the SpotInstanceVM.
	LabelSpotInstanceVMNamespace = "training.dcnlab.com/spot-instance-vm-namespace"
	// LabelSpotInstanceJob is on the Jobs and pods of a SpotInstanceJob: its name.
	LabelSpotInstanceJob = "training.dcnlab.com/spot-instance-job"
	// LabelReplica is on the Jobs and pods of a SpotInstanceJob: the index of the replica.
	LabelReplica = "training.dcnlab.com/replica"
)

// LabelSpotInstances with the value SpotInstancesAllowed is on the Namespaces whose SpotInstanceVMs may create instances. Only who
// may change Namespaces can set it: a user with a machine in the cluster can run the pods of others there.
const (
	LabelSpotInstances   = "training.dcnlab.com/spot-instances"
	SpotInstancesAllowed = "allowed"
)

// AnnotationOperatorIdentity is on a Namespace whose SpotInstanceVMs may use the operator's own identity: for what, as a JSON list of objects
// with project, network (default: default) and serviceAccount (default: none). Only who may change Namespaces can set it.
const AnnotationOperatorIdentity = "training.dcnlab.com/operator-identity"

// TaintUnverified with effect NoSchedule is on a node that has joined, from its first moment, until the operator has seen that it is
// the instance that it was made for.
const TaintUnverified = "training.dcnlab.com/unverified"

// How the coming end of a node is reported. The program that sees a notice, from any source, writes it on the Node; everything
// else reads it there.
const (
	// AnnotationPreemptionNotice is on a Node that its provider takes back: when that was first seen, in RFC 3339 with
	// nanoseconds.
	AnnotationPreemptionNotice = "training.dcnlab.com/preemption-notice"
	// AnnotationPreemptionSource is on the same Node: who saw it first (MetadataServer, ComputeOperation, Taint and so on).
	AnnotationPreemptionSource = "training.dcnlab.com/preemption-source"
	// TaintPreemption with effect NoSchedule keeps new pods off a node that its provider takes back.
	TaintPreemption = "training.dcnlab.com/preemption"
	// LabelPreemption is on every Node that has a notice of any source, for pods that tolerate all taints: their affinity sees labels.
	LabelPreemption = "training.dcnlab.com/preemption"
)

// TaintIdle with effect NoSchedule keeps pods off the node of an instance that has had no work for spec.idleTimeout, while
// the operator makes sure of that for the last time before it deletes the instance.
const TaintIdle = "training.dcnlab.com/idle"

// AnnotationCredentialsSecret is on a SpotInstanceVM that has instances: the name of the Secret with the credentials by which they are looked
// after, and deleted also when the job is gone that names it.
const AnnotationCredentialsSecret = "training.dcnlab.com/credentials-secret" //nolint:gosec // the name of an annotation

// FinalizerInstances is on every SpotInstanceVM that may have instances: they are gone before it is.
const FinalizerInstances = "training.dcnlab.com/instances"

// FinalizerCredentials and the name of a SpotInstanceVM are a finalizer of the Secret with its credentials: the Secret stays while the
// SpotInstanceVM has instances, since they cannot be deleted without it.
const FinalizerCredentials = "training.dcnlab.com/instances-of-" //nolint:gosec // the name of a finalizer
