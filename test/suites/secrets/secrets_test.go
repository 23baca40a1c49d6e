package secrets_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// garden is a namespace with planted secrets.
type garden struct {
	t         *testing.T
	namespace string
	// planted are the secrets by where they are.
	planted map[string]string
}

// plant makes up a secret that cannot be recognized by its form.
func (g *garden) plant(where string) string {
	g.planted[where] = "planted-" + rand.String(20)
	return g.planted[where]
}

// secret stores planted secrets in a Secret.
func (g *garden) secret(name string, kind corev1.SecretType, data map[string]string) {
	g.t.Helper()
	require.NoError(g.t, server.Create(g.t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace, Name: name}, Type: kind, StringData: data,
	}))
}

func from(name, key string) *corev1.SecretKeySelector {
	return &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key}
}

// job refers to a Secret wherever it can, and has one secret as a plain variable, as it should not.
func (g *garden) job() *mlv1.TrainingJob {
	g.secret("wandb", corev1.SecretTypeOpaque, map[string]string{"key": g.plant("the Secret of wandbSecretRef")})
	g.secret("data", corev1.SecretTypeOpaque, map[string]string{"key": g.plant("the Secret of a variable")})
	g.secret("pull", corev1.SecretTypeDockerConfigJson, map[string]string{corev1.DockerConfigJsonKey: fmt.Sprintf(
		`{"auths":{"registry.example.com":{"username":"bob","password":%q}}}`, g.plant("the image pull secret"))})
	plain := g.plant("a plain variable")
	return builders.TrainingJob("bert").Namespace(g.namespace).Checkpoints().Spec(func(s *mlv1.TrainingJobSpec) {
		s.Monitoring.WandbProject, s.Monitoring.WandbSecretRef = "bert", from("wandb", "key")
		s.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
		s.Env = []corev1.EnvVar{
			{Name: "DATA_KEY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: from("data", "key")}},
			{Name: "HF_TOKEN", Value: plain},
		}
	}).ToCreate()
}

// Whatever goes wrong, no secret is in a log line of the manager, in an event, in a metric, in the status of an object,
// or, when it is in a Secret, in any object but that.
func TestPlantedSecretsAppearNowhere(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "secrets-"}}
	require.NoError(t, server.Create(t.Context(), namespace))
	g := &garden{t: t, namespace: namespace.Name, planted: map[string]string{}}
	m := startManager(t)
	job := g.job()
	byReference := map[string]string{}
	for where, secret := range g.planted {
		if where != "a plain variable" {
			byReference[where] = secret
		}
	}
	require.NoError(t, server.Create(t.Context(), job))

	g.refusedURLs()
	g.unreachableStore()
	g.wordsOfOthers(job)

	events := g.events()
	require.Contains(t, events, "cannot open")
	status := g.statuses()
	require.Contains(t, status, "cannot open https://***@", "what is no secret is told")
	require.Contains(t, status, "with HF_TOKEN=***")
	measured := m.measured(t)
	m.stop()
	logs := m.logged(t)
	require.Contains(t, logs, `"level":"DEBUG"`)
	for where, secret := range g.planted {
		for place, text := range map[string]string{"a log line": logs, "an event": events, "the status of an object": status, "a metric": measured} {
			assert.NotContains(t, text, secret, "%s is in %s", where, place)
		}
	}
	objects := g.objects(func(o *unstructured.Unstructured) any { return o.Object })
	for where, secret := range byReference {
		assert.NotContains(t, objects, secret, "%s is in an object that is no Secret", where)
	}
}

// refusedURLs puts passwords into URLs, which the API server refuses without repeating them.
func (g *garden) refusedURLs() {
	g.t.Helper()
	for where, change := range map[string]func(*mlv1.TrainingJobSpec, string){
		"spec.monitoring.mlflowTrackingUri": func(s *mlv1.TrainingJobSpec, url string) { s.Monitoring.MLflowTrackingURI = url },
		"spec.checkpoint.storage.s3Endpoint": func(s *mlv1.TrainingJobSpec, url string) {
			s.Checkpoint.Storage = mlv1.CheckpointStorage{Type: mlv1.StorageS3, S3Bucket: "models", S3Endpoint: url}
		},
	} {
		password := g.plant("the password in " + where)
		job := builders.TrainingJob("url").Namespace(g.namespace).Checkpoints().Spec(func(s *mlv1.TrainingJobSpec) {
			change(s, "https://bob:"+password+"@example.com")
		}).ToCreate()
		err := server.Create(g.t.Context(), job)
		require.ErrorContains(g.t, err, where+": must not hold a user or password")
		require.ErrorContains(g.t, err, "use a Secret")
		require.NotContains(g.t, err.Error(), password)
	}
}

// unreachableStore has a job keep its checkpoints where no server answers, with credentials from a Secret.
func (g *garden) unreachableStore() {
	g.t.Helper()
	g.secret("store", corev1.SecretTypeOpaque, map[string]string{
		"AWS_ACCESS_KEY_ID": g.plant("the id in the Secret of the storage"), "AWS_SECRET_ACCESS_KEY": g.plant("the key in the Secret of the storage"),
	})
	job := builders.TrainingJob("store").Namespace(g.namespace).Checkpoints().Spec(func(s *mlv1.TrainingJobSpec) {
		s.Checkpoint.Storage = mlv1.CheckpointStorage{
			Type: mlv1.StorageS3, S3Bucket: "models", S3Endpoint: "http://127.0.0.1:1", SecretRef: &mlv1.SecretReference{Name: "store"},
		}
	}).ToCreate()
	require.NoError(g.t, server.Create(g.t.Context(), job))
	g.await(job, "looked at", func(j *mlv1.TrainingJob) bool { return len(j.Status.Conditions) > 0 })
}

// wordsOfOthers has a worker, the kubelet and a node say secrets in all the messages that end up in a status.
func (g *garden) wordsOfOthers(job *mlv1.TrainingJob) {
	g.t.Helper()
	url := fmt.Sprintf("cannot open https://bob:%s@mlflow.example.com", g.plant("a URL in a worker's last words"))

	// A crash whose last log lines the kubelet keeps.
	pod := g.pod(job, 0)
	words := fmt.Sprintf("Traceback:\n  %s\n  password=%s\n  with HF_TOKEN=%s", url, g.plant("a password in a worker's last words"), g.planted["a plain variable"])
	g.become(pod, corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: ended(1, words)})
	g.await(job, "Restarting", func(j *mlv1.TrainingJob) bool { return j.Status.RestartCount == 1 })

	// An image that cannot be pulled.
	pod = g.pod(job, 1)
	registry := fmt.Sprintf("cannot open https://bob:%s@registry.example.com/v2", g.plant("a URL in the kubelet's message"))
	g.become(pod, corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "trainer", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: registry}},
	}}})
	g.await(job, "waiting for its image", func(j *mlv1.TrainingJob) bool { return j.Status.Reason == reasons.ImagePullFailed })

	// An eviction.
	g.become(pod, corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "annotation api-key: " + g.plant("a key in the message of an eviction")})
	g.await(job, "Restarting again", func(j *mlv1.TrainingJob) bool { return j.Status.RestartCount == 2 })

	// A message of the worker contract.
	pod = g.pod(job, 2)
	message, err := json.Marshal(map[string]any{"reason": "ConfigError", "message": url + " with HF_TOKEN=" + g.planted["a plain variable"] +
		" and Authorization: Bearer " + g.plant("a token in the termination message")})
	require.NoError(g.t, err)
	g.become(pod, corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: ended(64, string(message))})
	g.await(job, "Failed", func(j *mlv1.TrainingJob) bool { return j.Status.State == mlv1.StateFailed })
}

func ended(code int32, message string) []corev1.ContainerStatus {
	return []corev1.ContainerStatus{{Name: "trainer", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message, FinishedAt: metav1.Now()},
	}}}
}

// pod creates the pod of an attempt as the Job controller does, once the pods of the earlier one are gone.
func (g *garden) pod(job *mlv1.TrainingJob, attempt int) *corev1.Pod {
	g.t.Helper()
	var workers batchv1.Job
	eventually(g.t, fmt.Sprintf("the Job of attempt %d", attempt), func(ctx context.Context) (bool, error) {
		g.collectGarbage(ctx)
		err := server.Get(ctx, client.ObjectKey{Namespace: g.namespace, Name: job.Name + "-training"}, &workers)
		return err == nil && workers.Annotations[mlv1.AnnotationAttempt] == fmt.Sprint(attempt), client.IgnoreNotFound(err)
	})
	pod := &corev1.Pod{ObjectMeta: workers.Spec.Template.ObjectMeta, Spec: workers.Spec.Template.Spec}
	pod.Namespace, pod.GenerateName = g.namespace, workers.Name+"-0-"
	pod.Labels[batchv1.JobCompletionIndexAnnotation] = "0"
	pod.Annotations[batchv1.JobCompletionIndexAnnotation] = "0"
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&workers, batchv1.SchemeGroupVersion.WithKind("Job"))}
	require.NoError(g.t, server.Create(g.t.Context(), pod))
	return pod
}

// collectGarbage deletes the pods of Jobs that are gone.
func (g *garden) collectGarbage(ctx context.Context) {
	var pods corev1.PodList
	var jobs batchv1.JobList
	require.NoError(g.t, server.List(ctx, &pods, client.InNamespace(g.namespace)))
	require.NoError(g.t, server.List(ctx, &jobs, client.InNamespace(g.namespace)))
	alive := map[types.UID]bool{}
	for _, job := range jobs.Items {
		alive[job.UID] = true
	}
	for i := range pods.Items {
		if owner := metav1.GetControllerOf(&pods.Items[i]); owner != nil && !alive[owner.UID] {
			_ = server.Delete(ctx, &pods.Items[i], &client.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}) // it may be gone
		}
	}
}

func (g *garden) become(pod *corev1.Pod, status corev1.PodStatus) {
	g.t.Helper()
	before := pod.DeepCopy()
	pod.Status = status
	require.NoError(g.t, server.Status().Patch(g.t.Context(), pod, client.MergeFrom(before)))
}

func (g *garden) await(job *mlv1.TrainingJob, what string, is func(*mlv1.TrainingJob) bool) {
	g.t.Helper()
	eventually(g.t, "job "+job.Name+" being "+what, func(ctx context.Context) (bool, error) {
		err := server.Get(ctx, client.ObjectKeyFromObject(job), job)
		return err == nil && is(job), err
	})
}

func (g *garden) events() string {
	return g.objects(func(o *unstructured.Unstructured) any {
		if o.GetKind() != "Event" {
			return nil
		}
		return o.Object
	})
}

func (g *garden) statuses() string {
	return g.objects(func(o *unstructured.Unstructured) any { return o.Object["status"] })
}

// objects returns what is taken from each object of the namespace, as JSON. Secrets, and pods, whose status the kubelet
// writes, are left out.
func (g *garden) objects(take func(*unstructured.Unstructured) any) string {
	g.t.Helper()
	discovered, err := discovery.NewDiscoveryClientForConfig(server.config)
	require.NoError(g.t, err)
	kinds, err := discovery.ServerPreferredNamespacedResources(discovered)
	require.NoError(g.t, err)
	all, err := dynamic.NewForConfig(server.config)
	require.NoError(g.t, err)
	var text strings.Builder
	seen := map[string]bool{}
	for _, group := range kinds {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		require.NoError(g.t, err)
		for _, kind := range group.APIResources {
			if kind.Name == "secrets" || kind.Name == "pods" || !strings.Contains(strings.Join(kind.Verbs, " "), "list") {
				continue
			}
			list, err := all.Resource(version.WithResource(kind.Name)).Namespace(g.namespace).List(g.t.Context(), metav1.ListOptions{})
			require.NoError(g.t, err, kind.Name)
			require.NoError(g.t, meta.EachListItem(list, func(item runtime.Object) error {
				o := item.(*unstructured.Unstructured)
				seen[o.GetKind()] = true
				if taken := take(o); taken != nil {
					line, err := json.Marshal(taken)
					require.NoError(g.t, err)
					text.Write(append(line, '\n'))
				}
				return nil
			}))
		}
	}
	for _, kind := range []string{"TrainingJob", "Job", "ConfigMap", "Service", "Event"} {
		require.True(g.t, seen[kind], "there is no %s to look at", kind)
	}
	return text.String()
}
