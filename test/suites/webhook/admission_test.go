package webhook_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	trainingjobwebhook "github.com/dcnlab/spot-training-operator/internal/webhook/trainingjob"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// An upgrade of the operator must not change the image of a job that exists.
func TestTheImageIsPinned(t *testing.T) {
	serve(t, install(t))
	ns := namespace(t)
	job := builders.TrainingJob("plain").Namespace(ns).ToCreate()
	require.NoError(t, k8s.Create(t.Context(), job))
	assert.Equal(t, settings.WorkerImage, job.Spec.Image)

	own := builders.TrainingJob("own").Namespace(ns).Spec(func(s *mlv1.TrainingJobSpec) { s.Image = "mine:1" }).ToCreate()
	require.NoError(t, k8s.Create(t.Context(), own))
	assert.Equal(t, "mine:1", own.Spec.Image)

	jax := builders.TrainingJob("jax").Namespace(ns).Spec(func(s *mlv1.TrainingJobSpec) { s.Framework = mlv1.FrameworkJAX }).ToCreate()
	err := k8s.Create(t.Context(), jax)
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	assert.ErrorContains(t, err, "spec.image: is missing: the operator's training worker has no JAX")
	jax.Spec.Image = "jax:1"
	require.NoError(t, k8s.Create(t.Context(), jax))
	assert.Equal(t, "jax:1", jax.Spec.Image)

	t.Run("whichever version it is created in", func(t *testing.T) {
		var definition apiextensionsv1.CustomResourceDefinition
		require.NoError(t, yaml.Unmarshal(readFile(t, root+"/config/crd/bases/ml.example.com_trainingjobs.yaml"), &definition))
		for _, version := range definition.Spec.Versions {
			if !version.Served {
				continue
			}
			object := &unstructured.Unstructured{}
			require.NoError(t, yaml.Unmarshal([]byte(`{apiVersion: ml.example.com/`+version.Name+`, kind: TrainingJob, metadata: {name: as-`+version.Name+`},
				spec: {model: m, dataset: d, numWorkers: 1, gpusPerWorker: 0}}`), &object.Object))
			object.SetNamespace(ns)
			require.NoError(t, k8s.Create(t.Context(), object))
			image, _, err := unstructured.NestedString(object.Object, "spec", "image")
			require.NoError(t, err)
			assert.Equal(t, settings.WorkerImage, image, version.Name)
		}
	})
	t.Run("replacing the job by its manifest changes nothing", func(t *testing.T) {
		again := builders.TrainingJob("plain").Namespace(ns).TTL(60).ToCreate()
		again.ResourceVersion = job.ResourceVersion
		require.NoError(t, k8s.Update(t.Context(), again))
		assert.Equal(t, settings.WorkerImage, again.Spec.Image)
	})
	t.Run("what the user wrote stays as it was written", func(t *testing.T) {
		sent := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(`{apiVersion: ml.example.com/v1, kind: TrainingJob, metadata: {name: written},
			spec: {model: m, dataset: d, numWorkers: 1, gpusPerWorker: 0, resources: {limits: {cpu: "0.5", memory: "1024Mi"}}}}`), &sent.Object))
		sent.SetNamespace(ns)
		require.NoError(t, k8s.Create(t.Context(), sent))
		limits, _, err := unstructured.NestedMap(sent.Object, "spec", "resources", "limits")
		require.NoError(t, err)
		assert.Equal(t, map[string]any{"cpu": "0.5", "memory": "1024Mi"}, limits)
	})
}

// A manifest can be applied again and again, by either way of applying, although the webhook has added a field to it.
func TestApplyingAgain(t *testing.T) {
	serve(t, install(t))
	ns := namespace(t)
	apply := func(ttl int64) error {
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(`{apiVersion: ml.example.com/v1, kind: TrainingJob, metadata: {name: applied},
			spec: {model: m, dataset: d, numWorkers: 1, gpusPerWorker: 0}}`), &object.Object))
		object.SetNamespace(ns)
		require.NoError(t, unstructured.SetNestedField(object.Object, ttl, "spec", "ttlSecondsAfterFinished"))
		return k8s.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("kubectl"))
	}
	require.NoError(t, apply(60))
	require.NoError(t, apply(60))
	require.NoError(t, apply(90))
	var job mlv1.TrainingJob
	require.NoError(t, k8s.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "applied"}, &job))
	assert.Equal(t, settings.WorkerImage, job.Spec.Image)
	assert.EqualValues(t, 90, *job.Spec.TTLSecondsAfterFinished)
}

// demanding names one of everything that it can name, and asks for more than the namespace gives.
func demanding(name, ns string) *mlv1.TrainingJob {
	return builders.TrainingJob(name).Namespace(ns).Workers(4).GPUs(2).Checkpoints().ResumeFrom("pvc://old/run").Spec(func(s *mlv1.TrainingJobSpec) {
		s.ServiceAccountName = "robot"
		s.Scheduling = &mlv1.Scheduling{Priority: "urgent-" + ns, Spot: &mlv1.SpotReference{Name: "t4-spot"}}
		s.Checkpoint.Storage.StorageClassName = ptr.To("fast-" + ns)
		s.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("64Gi")}}
		s.Env = []corev1.EnvVar{
			{Name: "A", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Key: "a"}}},
			{Name: "B", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "secret"}, Key: "b"}}},
		}
	}).ToCreate()
}

// What is missing is a warning to the user that creates the job and may be applying it before the rest; nothing is refused.
func TestWhatIsMissingIsToldAsWarnings(t *testing.T) {
	serve(t, install(t))
	ns := namespace(t)
	said, asUser := user(t)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "team"}, Spec: corev1.ResourceQuotaSpec{
		Hard: corev1.ResourceList{"requests.nvidia.com/gpu": resource.MustParse("4"), "requests.memory": resource.MustParse("1Ti")},
	}}
	limits := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "sizes"}, Spec: corev1.LimitRangeSpec{
		Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{"memory": resource.MustParse("32Gi")}}},
	}}
	require.NoError(t, k8s.Create(t.Context(), quota))
	require.NoError(t, k8s.Create(t.Context(), limits))

	awaitTold(t, ns, "ResourceQuota team", true)
	awaitTold(t, ns, "LimitRange sizes", true)

	require.NoError(t, asUser.Create(t.Context(), demanding("early", ns)))
	in := " in namespace " + ns
	until := ": create it or correct the name; until then "
	assert.ElementsMatch(t, []string{
		`spec.serviceAccountName: there is no ServiceAccount "robot"` + in + until + "the API server refuses the workers' pods",
		`spec.checkpoint.resumeFrom: there is no PersistentVolumeClaim "old"` + in + until + "the job waits",
		`spec.env[0].valueFrom.configMapKeyRef: there is no ConfigMap "settings"` + in + until + "the workers cannot start",
		`spec.scheduling.priority: there is no PriorityClass "urgent-` + ns + `"` + until + "the API server refuses the workers' pods",
		`spec.scheduling.spot.name: there is no SpotInstanceVM "t4-spot"` + in + until + "no spot instance is provisioned",
		`spec.checkpoint.storage.storageClassName: there is no StorageClass "fast-` + ns + `"` + until + "a new claim early-checkpoints stays Pending",
		"spec.resources: the worker asks for 64Gi of memory, but LimitRange sizes allows at most 32Gi for each container, so that the API server refuses it: ask for less, or change the LimitRange",
		"spec.gpusPerWorker: the job needs 8 of requests.nvidia.com/gpu in all, but ResourceQuota team allows 4, so that it can never run: ask for less, or raise the quota",
	}, said())

	require.NoError(t, k8s.Delete(t.Context(), quota))
	require.NoError(t, k8s.Delete(t.Context(), limits))
	for _, object := range whatIsNamed(t, ns) {
		require.NoError(t, k8s.Create(t.Context(), object))
		t.Cleanup(func() { _ = k8s.Delete(context.Background(), object) })
	}
	awaitTold(t, ns, "ResourceQuota team", false)
	awaitTold(t, ns, "LimitRange sizes", false)
	awaitTold(t, ns, "StorageClass", false)
	require.NoError(t, asUser.Create(t.Context(), demanding("late", ns)))
	assert.Equal(t, []string{`spec.env[0].valueFrom.configMapKeyRef: ConfigMap "settings"` + in + ` has no key "a": add it or correct the key; until then the workers cannot start`}, said())
}

// awaitTold waits until a text is told, or no longer told, to a user that tries to create the demanding job: lists are
// answered from the API server's memory, a little late.
func awaitTold(t *testing.T, ns, text string, told bool) {
	t.Helper()
	said, asUser := user(t)
	eventually(t, text, func() bool {
		require.NoError(t, asUser.Create(t.Context(), demanding("trial", ns), client.DryRunAll))
		return strings.Contains(strings.Join(said(), "\n"), text) == told
	})
}

// whatIsNamed is what the demanding job names, but for the key of the ConfigMap, and the Secret.
func whatIsNamed(t *testing.T, ns string) []client.Object {
	t.Helper()
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }
	return []client.Object{
		&corev1.ServiceAccount{ObjectMeta: meta("robot")},
		&corev1.ConfigMap{ObjectMeta: meta("settings"), Data: map[string]string{"b": "1"}},
		&corev1.PersistentVolumeClaim{ObjectMeta: meta("old"), Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}},
		}},
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent-" + ns}, Value: 1000},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast-" + ns}, Provisioner: "example.com/none"},
		sampleVM(t, ns),
	}
}

// What no worker could ever be created from is refused, in the words of the TrainingJob, and not stored.
func TestWhatCanNeverWorkIsRefused(t *testing.T) {
	serve(t, install(t))
	ns := namespace(t)
	for name, test := range map[string]struct{ spec, field, text string }{
		"an amount that no client can read": {`resources: {limits: {rdma/hca: "1e1.5"}}`, "spec.resources.limits[rdma/hca]",
			`"1e1.5" is not an amount that Kubernetes can read: write for example 1, 500m or 32Gi`},
		"a variable that is none":  {`env: [{name: "A=B", value: x}]`, "spec.env[0].name", "Invalid value"},
		"a topology that is none":  {`scheduling: {affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: "not a label"}]}}}`, "spec.scheduling.affinity", "topologyKey"},
		"a label that is none":     {`scheduling: {nodeSelector: {gpu: "not a value"}}`, "spec.scheduling.nodeSelector", "Invalid value"},
		"a resource that is none":  {`resources: {limits: {fpga: 1}}`, "spec.resources.limits[fpga]", "must be a standard resource"},
		"half a device":            {`resources: {limits: {example.com/fpga: "0.5"}}`, "spec.resources.limits[example.com/fpga]", "must be an integer"},
		"a claim of no device":     {`resources: {claims: [{name: gpu}]}`, "spec.resources.claims: gpu is not in spec.podTemplate.resourceClaims", "add it"},
		"a user below 0":           {`securityContext: {runAsUser: -1}`, "spec.securityContext.runAsUser", "must be between 0 and"},
		"a source without a field": {`env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.nothing}}}]`, "spec.env[0].valueFrom.fieldRef.fieldPath", "error converting fieldPath"},
	} {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{}
			require.NoError(t, yaml.Unmarshal(fmt.Appendf(nil, `{apiVersion: ml.example.com/v1, kind: TrainingJob, metadata: {generateName: bad-},
				spec: {model: m, dataset: d, numWorkers: 1, gpusPerWorker: 0, %s}}`, test.spec), &object.Object))
			object.SetNamespace(ns)
			err := k8s.Create(t.Context(), object)
			require.Error(t, err)
			assert.True(t, apierrors.IsInvalid(err), "%v", err)
			assert.Contains(t, err.Error(), "denied the request: "+test.field)
			assert.Contains(t, err.Error(), test.text)
		})
	}
	var list mlv1.TrainingJobList
	require.NoError(t, k8s.List(t.Context(), &list, client.InNamespace(ns)), "jobs can be listed")
	assert.Empty(t, list.Items)
}

// A mistake that the schema knows is told in the schema's words, although the webhook sees the object first.
func TestTheSchemaHasTheLastWord(t *testing.T) {
	serve(t, install(t))
	ns := namespace(t)
	for _, test := range []struct{ spec, text string }{
		{`model: 50, dataset: d, numWorkers: 1`, `spec.model in body must be of type string`},
		{`model: m, dataset: d, numWorkers: two`, `spec.numWorkers in body must be of type integer`},
		{`model: m, dataset: d, numWorkers: 1, image: ""`, `spec.image in body should be at least 1 chars long`},
	} {
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(`{apiVersion: ml.example.com/v1, kind: TrainingJob, metadata: {name: bad}, spec: {`+test.spec+`}}`), &object.Object))
		object.SetNamespace(ns)
		err := k8s.Create(t.Context(), object)
		require.Error(t, err)
		assert.Contains(t, err.Error(), test.text)
		assert.NotContains(t, err.Error(), "admission webhook")
	}
}

// The Pod Security warnings that the workers would get are told when the job is created.
func TestPodSecurityWarningsReachTheUser(t *testing.T) {
	serve(t, install(t))
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "restricted-", Labels: map[string]string{"pod-security.kubernetes.io/warn": "restricted"}}}
	require.NoError(t, k8s.Create(t.Context(), ns))
	said, asUser := user(t)
	require.NoError(t, asUser.Create(t.Context(), builders.TrainingJob("plain").Namespace(ns.Name).ToCreate()))
	assert.Empty(t, said())
	rdma := builders.TrainingJob("rdma").Namespace(ns.Name).Spec(func(s *mlv1.TrainingJobSpec) { s.Networking.RDMAEnabled = ptr.To(true) }).ToCreate()
	require.NoError(t, asUser.Create(t.Context(), rdma))
	if warnings := said(); assert.Len(t, warnings, 1) {
		assert.Contains(t, warnings[0], `the workers' Job: would violate PodSecurity "restricted:latest"`)
		assert.Contains(t, warnings[0], "IPC_LOCK")
	}
}

// The webhooks are called for what they have something to say about, and for nothing else.
func TestCalls(t *testing.T) {
	serve(t, install(t))
	ns := namespace(t)
	job := builders.TrainingJob("bert").Namespace(ns).Elastic(1, 8).ToCreate()
	update := func(change func()) func() error {
		return func() error { change(); return k8s.Update(context.Background(), job) }
	}
	for _, step := range []struct {
		name                 string
		do                   func() error
		defaulted, validated int
	}{
		{"a creation", func() error { return k8s.Create(t.Context(), job) }, 1, 1},
		{"a label", update(func() { job.Labels = map[string]string{"a": "b"} }), 0, 0},
		{"a finalizer", update(func() { job.Finalizers = []string{"example.com/hold"} }), 0, 0},
		{"the status", func() error { job.Status.Reason = "X"; return k8s.Status().Update(t.Context(), job) }, 0, 0},
		{"the spec", update(func() { job.Spec.NumWorkers = 2 }), 0, 1},
		{"the scale", func() error {
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":3}}`))
			return k8s.SubResource("scale").Patch(t.Context(), job.DeepCopy(), patch, client.FieldOwner("hpa"))
		}, 0, 0},
		{"a deletion", func() error { return k8s.Delete(t.Context(), job) }, 0, 0},
		{"the last finalizer", func() error {
			return k8s.Patch(t.Context(), job, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
		}, 0, 0},
	} {
		defaulted, validated := calls(t, trainingjobwebhook.DefaultingPath), calls(t, trainingjobwebhook.ValidatingPath)
		require.NoError(t, step.do(), step.name)
		assert.Equal(t, step.defaulted, calls(t, trainingjobwebhook.DefaultingPath)-defaulted, "%s is defaulted", step.name)
		assert.Equal(t, step.validated, calls(t, trainingjobwebhook.ValidatingPath)-validated, "%s is validated", step.name)
	}
}

// calls is how often a webhook was called.
func calls(t *testing.T, path string) (sum int) {
	t.Helper()
	families, err := ctrlmetrics.Registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() != "controller_runtime_webhook_requests_total" {
			continue
		}
		for _, metric := range family.Metric {
			for _, label := range metric.Label {
				if label.GetValue() == path {
					sum += int(metric.Counter.GetValue())
				}
			}
		}
	}
	return sum
}

// A manager that is down, or does not answer, keeps no user from working.
func TestWithoutTheManager(t *testing.T) {
	at := install(t)
	stop := serve(t, at)
	ns := namespace(t)
	create := func(name string) time.Duration {
		begin := time.Now()
		job := builders.TrainingJob(name).Namespace(ns).ToCreate()
		require.NoError(t, k8s.Create(t.Context(), job))
		took := time.Since(begin)
		job.Labels = map[string]string{"a": "b"}
		require.NoError(t, k8s.Update(t.Context(), job))
		require.NoError(t, k8s.Delete(t.Context(), job))
		return took
	}
	stop()
	assert.Less(t, create("down"), 5*time.Second, "nothing is waited for")

	silent, err := net.Listen("tcp", address(at.LocalServingPort))
	require.NoError(t, err)
	defer silent.Close()
	assert.Less(t, create("silent"), 15*time.Second, "each of two webhooks is waited for 5 s")
}
