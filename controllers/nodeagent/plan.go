package nodeagent

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// observed is what decides about the DaemonSet.
type observed struct {
	// vms and spotNodes are how many there are.
	vms, spotNodes int
	// existing DaemonSet, or nil.
	existing *appsv1.DaemonSet
	// written is the generation of the DaemonSet that this manager has written last; 0 when it has not.
	written int64
	// manager is the Deployment of the operator, or nil where it runs without one.
	manager *appsv1.Deployment
	// lack is what the agent lacks to mark its own Node and no other; empty for nothing.
	lack string
}

// isWanted says whether there is, or may soon be, a node for the agent.
func (o *observed) isWanted() bool { return o.vms > 0 || o.spotNodes > 0 }

// desired is what should happen to the DaemonSet; nothing when both are nil.
type desired struct {
	set    *appsv1.DaemonSet
	remove *appsv1.DaemonSet
}

func plan(o observed, s Settings) desired {
	switch {
	case o.existing != nil && o.existing.DeletionTimestamp != nil: // its end will be told
		return desired{}
	case !o.isWanted(), o.lack != "":
		return desired{remove: o.existing}
	}
	set := daemonSet(s, o.manager)
	// What this manager wrote cannot be told from what the API server fills in, so that one that has just started writes once; that changes
	// nothing when all is as it was.
	if o.existing != nil && o.existing.Generation == o.written && equality.Semantic.DeepDerivative(set.Labels, o.existing.Labels) &&
		equality.Semantic.DeepEqual(set.OwnerReferences, o.existing.OwnerReferences) {
		return desired{}
	}
	return desired{set: set}
}

// spotLabels are those of nodes that are spot instances, and their value; empty for any.
var spotLabels = []struct{ key, value string }{
	{spotv1alpha1.LabelSpotInstanceVM, ""},
	{"cloud.google.com/gke-spot", "true"},
	{"cloud.google.com/gke-provisioning", "spot"},
	{"cloud.google.com/gke-preemptible", "true"},
}

func isSpot(labels map[string]string) bool {
	for _, label := range spotLabels {
		if value, ok := labels[label.key]; ok && (label.value == "" || value == label.value) {
			return true
		}
	}
	return false
}

// onSpotNodes is the same for the scheduler: a term for each label.
func onSpotNodes() *corev1.Affinity {
	var terms []corev1.NodeSelectorTerm
	for _, label := range spotLabels {
		is := corev1.NodeSelectorRequirement{Key: label.key, Operator: corev1.NodeSelectorOpExists}
		if label.value != "" {
			is.Operator, is.Values = corev1.NodeSelectorOpIn, []string{label.value}
		}
		linux := corev1.NodeSelectorRequirement{Key: corev1.LabelOSStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"linux"}}
		terms = append(terms, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{is, linux}})
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
	}}
}

// probesPort is where the agent serves its health.
const probesPort = 8081

// criticalClass keeps the agent running for longer than the pods that it speaks for.
const criticalClass = "system-node-critical"

func daemonSet(s Settings, manager *appsv1.Deployment) *appsv1.DaemonSet {
	selector := map[string]string{"app.kubernetes.io/name": Name}
	labels := map[string]string{"app.kubernetes.io/name": Name, "app.kubernetes.io/part-of": "spot-training-operator"}
	set := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: Name, Labels: labels},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
				Type:          appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: ptr.To(intstr.FromString("25%"))},
			},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec(s)},
		},
	}
	if manager != nil {
		// Deleting the operator's Deployment, which is what every way to uninstall it does, removes the agents.
		set.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "Deployment", Name: manager.Name, UID: manager.UID,
		}}
		set.Spec.Template.Spec.ImagePullSecrets = manager.Spec.Template.Spec.ImagePullSecrets
	}
	return set
}

func podSpec(s Settings) corev1.PodSpec {
	agent := corev1.Container{
		Name: "node-agent", Image: s.Image, ImagePullPolicy: corev1.PullIfNotPresent,
		Args: []string{"node-agent"},
		Env: []corev1.EnvVar{{
			Name:      "NODE_NAME",
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "spec.nodeName"}},
		}},
		Ports: []corev1.ContainerPort{{Name: "probes", ContainerPort: probesPort, Protocol: corev1.ProtocolTCP}},
		LivenessProbe: &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("probes")}},
			PeriodSeconds: 20,
		},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
		},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
	if s.MetadataURL != "" {
		agent.Args = append(agent.Args, "--metadata-url="+s.MetadataURL)
	}
	return corev1.PodSpec{
		ServiceAccountName: Name,
		PriorityClassName:  criticalClass,
		Affinity:           onSpotNodes(),
		// Whatever taints a spot node has, also while it is going: its agent stays.
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](65532), RunAsGroup: ptr.To[int64](65532),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		EnableServiceLinks:            ptr.To(false),
		TerminationGracePeriodSeconds: ptr.To[int64](5),
		Containers:                    []corev1.Container{agent},
	}
}
