package build

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

const (
	// tensorBoardDefaultPort is where TensorBoard serves unless it is told otherwise.
	tensorBoardDefaultPort = 6006

	// scrapersLabel on a namespace says that its pods may read metrics, here as for the manager's own (config/network-policy).
	scrapersLabel, scrapersValue = "metrics", "enabled"
)

// IsIsolated says whether the job's pods are closed to the pods of others: the job says so, or leaves it to the
// installation. Ray runs what anyone sends to its ports, so that a Ray job is not left to the installation.
func IsIsolated(job *mlv1.TrainingJob, settings Settings) bool {
	if job.Spec.Networking.Isolation == "" {
		return settings.IsolateJobs || job.Spec.Framework == mlv1.FrameworkRay
	}
	return job.Spec.Networking.Isolation == mlv1.IsolationJob
}

// WasIsolated says whether the workers were started with a NetworkPolicy.
func WasIsolated(workers *batchv1.Job) bool {
	return workers.Annotations[mlv1.AnnotationIsolated] == "true"
}

// NetworkPolicy lets the job's pods reach one another at any port, because collective libraries choose theirs at random,
// and lets in from outside only who reads progress, checkpoints and metrics. What the pods themselves connect to, their
// DNS, data and storage, is left alone.
func NetworkPolicy(job *mlv1.TrainingJob, settings Settings) *networkingv1.NetworkPolicy {
	own := metav1.LabelSelector{MatchLabels: map[string]string{mlv1.LabelTrainingJob: job.Name}}
	metrics := job.Spec.Monitoring.MetricsPort
	return &networkingv1.NetworkPolicy{
		ObjectMeta: Meta(job, PolicyName(job)),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: own, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{
				{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &own}}},
				{From: managerPeers(settings), Ports: policyPorts(metrics, AgentPort(job, settings), tensorBoardDefaultPort)},
				{From: namespacePeers(scrapersLabel, scrapersValue), Ports: policyPorts(metrics)},
			},
		},
	}
}

// PolicyName is the name of the NetworkPolicy of a job.
func PolicyName(job *mlv1.TrainingJob) string { return job.Name + "-training" }

// managerPeers are the pods of the manager's namespace; all, when the manager does not run in the cluster and its address
// is not known.
func managerPeers(settings Settings) []networkingv1.NetworkPolicyPeer {
	if settings.Namespace == "" {
		return nil
	}
	return namespacePeers(corev1.LabelMetadataName, settings.Namespace)
}

func namespacePeers(label, value string) []networkingv1.NetworkPolicyPeer {
	return []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{label: value}}}}
}

func policyPorts(numbers ...int32) []networkingv1.NetworkPolicyPort {
	var ports []networkingv1.NetworkPolicyPort
	for _, number := range numbers {
		protocol, port := corev1.ProtocolTCP, intstr.FromInt32(number)
		ports = append(ports, networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &port})
	}
	return ports
}
