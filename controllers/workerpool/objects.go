package workerpool

import (
	"cmp"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/podbuild"
)

const (
	// container of the workers' pods.
	container = "worker"
	// workerID is the user and group of the workers, unless their image names one: restricted Pod Security wants a number.
	workerID = 1000
	// Audience of the tokens that the job service takes.
	Audience = "job-service"
	// tokenFolder has the token, which the kubelet replaces long before it ends.
	tokenFolder = "/var/run/secrets/job-service" //nolint:gosec // the path of a mount
	// caFile is in that folder, and in the ConfigMap: the authorities that the workers trust.
	caFile       = "ca.crt"
	tokenSeconds = 3600
	// graceSeconds is how long a worker that has to go may work on its task before it gives it back; podGraceSeconds leave it the time
	// to do so.
	graceSeconds    = 300
	podGraceSeconds = graceSeconds + 30
	metricsPort     = 8080
)

// nameOf is the name of all objects of a queue's workers.
func nameOf(queue string) string { return queue + "-workers" }

// namespaceOf is where the workers run.
func (s Settings) namespaceOf(pool *aiplatformv1alpha1.WorkerPool) string {
	return cmp.Or(pool.Namespace, s.Namespace)
}

func objectMeta(queue *aiplatformv1alpha1.AIJobQueue, namespace string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: nameOf(queue.Name), Namespace: namespace, Labels: labelsOf(queue),
		// Deleting the queue removes its workers. It does not wait for them, so that no right to block deletions is needed.
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: aiplatformv1alpha1.GroupVersion.String(), Kind: "AIJobQueue", Name: queue.Name, UID: queue.UID,
			Controller: ptr.To(true),
		}},
	}
}

func labelsOf(queue *aiplatformv1alpha1.AIJobQueue) map[string]string {
	return map[string]string{
		aiplatformv1alpha1.LabelWorkerPool: queue.Name,
		"app.kubernetes.io/name":           "worker-pool",
		"app.kubernetes.io/part-of":        "spot-training-operator",
	}
}

// rights are the objects that let the workers take the tasks of their queue, and of no other, and know the job service.
func rights(queue *aiplatformv1alpha1.AIJobQueue, s Settings, known trust) []client.Object {
	namespace := s.namespaceOf(queue.Spec.Workers)
	all := []client.Object{serviceAccount(queue, namespace), clusterRole(queue), clusterRoleBinding(queue, namespace)}
	if known.bundle != "" {
		all = append(all, authorities(queue, namespace, known.bundle))
	}
	return all
}

// authorities of the job service's certificate, where the kubelet finds them for the workers.
func authorities(queue *aiplatformv1alpha1.AIJobQueue, namespace, bundle string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: objectMeta(queue, namespace), Data: map[string]string{caFile: bundle}}
}

func serviceAccount(queue *aiplatformv1alpha1.AIJobQueue, namespace string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		ObjectMeta: objectMeta(queue, namespace), AutomountServiceAccountToken: ptr.To(false),
	}
}

func clusterRole(queue *aiplatformv1alpha1.AIJobQueue) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		ObjectMeta: objectMeta(queue, ""),
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{aiplatformv1alpha1.GroupVersion.Group}, Resources: []string{"aijobqueues"},
			ResourceNames: []string{queue.Name}, Verbs: []string{"work"},
		}},
	}
}

func clusterRoleBinding(queue *aiplatformv1alpha1.AIJobQueue, namespace string) *rbacv1.ClusterRoleBinding {
	name := nameOf(queue.Name)
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: objectMeta(queue, ""),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	}
}

// deployment of the workers of a queue that has some.
func deployment(queue *aiplatformv1alpha1.AIJobQueue, replicas int32, s Settings, known trust) *appsv1.Deployment {
	pool := queue.Spec.Workers
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labelsOf(queue)}, Spec: podSpec(queue, s, known)}
	podbuild.Add(&template, &pool.Settings, map[string]string{aiplatformv1alpha1.LabelWorkerPool: queue.Name})
	return &appsv1.Deployment{
		ObjectMeta: objectMeta(queue, s.namespaceOf(pool)),
		Spec: appsv1.DeploymentSpec{
			Replicas:             &replicas,
			RevisionHistoryLimit: ptr.To[int32](2),
			Selector:             &metav1.LabelSelector{MatchLabels: map[string]string{aiplatformv1alpha1.LabelWorkerPool: queue.Name}},
			Template:             template,
		},
	}
}

func podSpec(queue *aiplatformv1alpha1.AIJobQueue, s Settings, known trust) corev1.PodSpec {
	pool := queue.Spec.Workers
	selector := map[string]string{}
	for key, value := range pool.NodeSelector {
		selector[key] = string(value)
	}
	mounted := []corev1.VolumeProjection{{
		ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
			Audience: Audience, ExpirationSeconds: ptr.To[int64](tokenSeconds), Path: "token",
		},
	}}
	if known.bundle != "" { // which the kubelet replaces, too, and the pods go on
		mounted = append(mounted, corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: nameOf(queue.Name)}, Items: []corev1.KeyToPath{{Key: caFile, Path: caFile}},
		}})
	}
	return corev1.PodSpec{
		ServiceAccountName: nameOf(queue.Name), AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false),
		NodeSelector: selector, Tolerations: pool.Tolerations,
		TerminationGracePeriodSeconds: ptr.To(podbuild.GracePeriod(&pool.Settings, podGraceSeconds)),
		ImagePullSecrets:              pool.ImagePullSecrets,
		PriorityClassName:             pool.PriorityClassName,
		Affinity:                      pool.PodAffinity(),
		SecurityContext: cmp.Or(pool.SecurityContext, &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](workerID), RunAsGroup: ptr.To[int64](workerID),
			FSGroup:        ptr.To[int64](workerID),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}),
		Containers: []corev1.Container{worker(queue, s, known)},
		Volumes: []corev1.Volume{
			{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: mounted}}},
			{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		},
	}
}

func worker(queue *aiplatformv1alpha1.AIJobQueue, s Settings, known trust) corev1.Container {
	pool := queue.Spec.Workers
	c := corev1.Container{
		Name: container, Image: pool.Image, Command: pool.Command, Args: pool.Args, ImagePullPolicy: cmp.Or(pool.ImagePullPolicy, corev1.PullIfNotPresent),
		Env:             environment(queue, s, known),
		Ports:           []corev1.ContainerPort{{Name: "metrics", ContainerPort: metricsPort, Protocol: corev1.ProtocolTCP}},
		SecurityContext: child.Restricted(),
		VolumeMounts: []corev1.VolumeMount{
			{Name: "token", MountPath: tokenFolder, ReadOnly: true},
			{Name: "tmp", MountPath: "/tmp"},
		},
	}
	if pool.Resources != nil {
		c.Resources = *pool.Resources
	}
	if pool.Image == "" {
		c.Image = s.WorkerImage
		if len(c.Command) == 0 {
			c.Command = []string{"/usr/bin/env", "python3", "-m", "pool_worker"}
		}
		// Other images may not serve these paths.
		c.ReadinessProbe = probe("/readyz", 5)
		c.LivenessProbe = probe("/healthz", 20)
	}
	return c
}

func probe(path string, period int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("metrics")}},
		PeriodSeconds: period, TimeoutSeconds: 5,
	}
}

// environment of the workers: the operator's own variables first, which no other may replace.
func environment(queue *aiplatformv1alpha1.AIJobQueue, s Settings, known trust) []corev1.EnvVar {
	env := []corev1.EnvVar{
		{Name: "JOB_SERVICE_URL", Value: s.JobServiceURL},
		{Name: "JOB_SERVICE_TOKEN_FILE", Value: tokenFolder + "/token"},
		{Name: "QUEUE", Value: queue.Name},
		{Name: "WORKER_ID", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.name"}}},
		{Name: "GRACE_SECONDS", Value: strconv.Itoa(graceSeconds)},
	}
	if known.bundle != "" {
		env = append(env, corev1.EnvVar{Name: "JOB_SERVICE_CA_FILE", Value: tokenFolder + "/" + caFile})
	}
	own := map[string]bool{}
	for _, variable := range env {
		own[variable.Name] = true
	}
	for _, variable := range queue.Spec.Workers.Env {
		if !own[variable.Name] {
			env = append(env, variable)
		}
	}
	return env
}
