package aijob

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/podbuild"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/workerdefaults"
)

const (
	// container is the name of the container of every pod.
	container = "job"
	// masterPort is where member 0 of a gang listens for the others.
	masterPort = 29500
	// portName is the name of the port at which a job serves.
	portName = "http"
	// grace and trainingGrace are how long a container has after its SIGTERM.
	grace, trainingGrace int64 = 30, 60
)

func labelsOf(job *aiplatformv1alpha1.AIJob) map[string]string {
	labels := map[string]string{aiplatformv1alpha1.LabelAIJob: job.Name}
	if job.Spec.QueueName != "" {
		labels[aiplatformv1alpha1.LabelQueue] = job.Spec.QueueName
	}
	return labels
}

func ownedBy(job *aiplatformv1alpha1.AIJob) []metav1.OwnerReference {
	return []metav1.OwnerReference{*metav1.NewControllerRef(job, aiplatformv1alpha1.GroupVersion.WithKind(kindAIJob))}
}

// buildPod is the pod of a member in the present try, which fetches its code by a container of the operator's image. It can only run on its node: kube-scheduler binds it there, and finds
// nothing to decide.
func buildPod(job *aiplatformv1alpha1.AIJob, member int32, node, priorityClass, image string) *corev1.Pod {
	attempt := attemptOf(&job.Status)
	labels := labelsOf(job)
	labels[aiplatformv1alpha1.LabelMember] = strconv.Itoa(int(member))
	labels[aiplatformv1alpha1.LabelAttempt] = strconv.Itoa(int(attempt))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: podName(job.Name, member, attempt), Namespace: job.Namespace, Labels: labels, OwnerReferences: ownedBy(job),
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: ptr.To(graceOf(job)),
			EnableServiceLinks:            ptr.To(false),
			ServiceAccountName:            job.Spec.ServiceAccountName,
			NodeSelector:                  queueing.Selector(job.Spec.NodeSelector),
			Tolerations:                   job.Spec.Tolerations,
			PriorityClassName:             cmp.Or(priorityClass, job.Spec.PriorityClassName),
			ImagePullSecrets:              job.Spec.ImagePullSecrets,
			Affinity:                      job.Spec.PodAffinity(),
			SecurityContext:               cmp.Or(job.Spec.SecurityContext, child.RestrictedPod()),
			Containers: []corev1.Container{{
				Name: container, Image: job.Spec.Image, ImagePullPolicy: job.Spec.ImagePullPolicy, Command: job.Spec.Command, Args: job.Spec.Args,
				Env: environment(job, member), Resources: workerdefaults.With(job.Spec.Resources, job.Status.DefaultResources),
				SecurityContext:          child.Restricted(),
				TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			}},
		},
	}
	podbuild.PlaceOn(&pod.Spec, node)
	if job.Spec.ServiceAccountName == "" {
		pod.Spec.AutomountServiceAccountToken = ptr.To(false)
	}
	if isGang(job) {
		pod.Spec.Hostname, pod.Spec.Subdomain = hostName(job.Name, member), gangServiceName(job.Name)
	}
	if serves := job.Spec.Service; serves != nil {
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: portName, ContainerPort: serves.Port, Protocol: corev1.ProtocolTCP}}
		pod.Spec.Containers[0].ReadinessProbe = readinessOf(serves)
	}
	podbuild.AddSource(&pod.Spec, job.Spec.Source, job.Status.Source, image)
	template := corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}
	podbuild.Add(&template, &job.Spec.Settings, map[string]string{aiplatformv1alpha1.LabelAIJob: job.Name})
	pod.ObjectMeta, pod.Spec = template.ObjectMeta, template.Spec
	return pod
}

// readinessOf asks a pod whether it can serve. A model takes seconds to load, so that it is asked often.
func readinessOf(serves *aiplatformv1alpha1.AIJobService) *corev1.Probe {
	probe := &corev1.Probe{PeriodSeconds: 2, TimeoutSeconds: 2, FailureThreshold: 3}
	if serves.ReadinessPath == "" {
		probe.TCPSocket = &corev1.TCPSocketAction{Port: intstr.FromString(portName)}
		return probe
	}
	probe.HTTPGet = &corev1.HTTPGetAction{Path: serves.ReadinessPath, Port: intstr.FromString(portName)}
	return probe
}

func graceOf(job *aiplatformv1alpha1.AIJob) int64 {
	if t := job.Spec.PodTemplate; t != nil && t.TerminationGracePeriodSeconds != nil {
		return *t.TerminationGracePeriodSeconds
	}
	if job.Spec.JobType == aiplatformv1alpha1.JobTraining { // time for a last checkpoint
		return trainingGrace
	}
	return grace
}

// environment of a member: first what the platform tells it, so that the user's variables can refer to it. One of the same name in the spec
// replaces it, but for those by which the members of a gang find each other.
func environment(job *aiplatformv1alpha1.AIJob, member int32) []corev1.EnvVar {
	ignored := aiplatformv1alpha1.IgnoredVariables(&job.Spec)
	users := slices.DeleteFunc(slices.Clone(job.Spec.Env), func(v corev1.EnvVar) bool { return slices.Contains(ignored, v.Name) })
	own := map[string]bool{}
	for _, variable := range users {
		own[variable.Name] = true
	}
	var list []corev1.EnvVar
	add := func(name, value string) {
		if !own[name] {
			list = append(list, corev1.EnvVar{Name: name, Value: value})
		}
	}
	add("AIJOB_NAME", job.Name)
	add("JOB_TYPE", string(job.Spec.JobType))
	add("ATTEMPT", strconv.Itoa(int(attemptOf(&job.Status))))
	if job.Spec.Config != nil && len(job.Spec.Config.Raw) > 0 {
		add("CONFIG", strings.ReplaceAll(string(job.Spec.Config.Raw), "$", "$$")) // or Kubernetes would take $(NAME) in it for a variable
	}
	if isGang(job) {
		add("RANK", strconv.Itoa(int(member)))
		add("JOB_COMPLETION_INDEX", strconv.Itoa(int(member)))
		add("WORLD_SIZE", strconv.Itoa(int(membersOf(job))))
		add("MASTER_ADDR", hostName(job.Name, 0)+"."+gangServiceName(job.Name)+"."+job.Namespace+".svc")
		add("MASTER_PORT", strconv.Itoa(masterPort))
	}
	return append(list, users...)
}

// buildServices are the Services of a job.
func buildServices(job *aiplatformv1alpha1.AIJob) []*corev1.Service {
	var services []*corev1.Service
	if isGang(job) {
		services = append(services, buildGangService(job))
	}
	if job.Spec.Service != nil {
		services = append(services, buildService(job, job.Name, job.Spec.Service.Port, portName))
	}
	return services
}

// buildGangService publishes every member of a gang under its host name as soon as it has an address, because members look for one
// another before they are ready.
func buildGangService(job *aiplatformv1alpha1.AIJob) *corev1.Service {
	service := buildService(job, gangServiceName(job.Name), masterPort, "master")
	service.Spec.ClusterIP, service.Spec.PublishNotReadyAddresses = corev1.ClusterIPNone, true
	return service
}

func buildService(job *aiplatformv1alpha1.AIJob, name string, port int32, portName string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: job.Namespace, Labels: labelsOf(job), OwnerReferences: ownedBy(job)},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{aiplatformv1alpha1.LabelAIJob: job.Name},
			Ports: []corev1.ServicePort{{
				Name: portName, Port: port, TargetPort: intstr.FromInt32(port), Protocol: corev1.ProtocolTCP,
			}},
		},
	}
}

// urlOf is where a job serves within the cluster; empty when it does not.
func urlOf(job *aiplatformv1alpha1.AIJob) string {
	if job.Spec.Service == nil {
		return ""
	}
	return fmt.Sprintf("http://%s.%s.svc:%d", job.Name, job.Namespace, job.Spec.Service.Port)
}
