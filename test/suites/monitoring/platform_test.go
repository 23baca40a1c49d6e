package monitoring_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// waitingQueue has a job that no node has room for.
const waitingQueue = "gpus"

// playPlatform makes spot instances and jobs that cannot come to anything: their Secret does not exist, and no node is
// there. That is told in conditions and figures.
func (w *world) playPlatform(t *testing.T) {
	t.Helper()
	var vm spotv1alpha1.SpotInstanceVM
	text, err := os.ReadFile(root + "/config/samples/training_v1alpha1_spotinstancevm.yaml")
	require.NoError(t, err)
	require.NoError(t, yaml.UnmarshalStrict(text, &vm))
	vm.Namespace = jobNamespace
	builders.AllowSpotInstances(t, w.k8s, jobNamespace)
	job := builders.SpotInstanceJob("redundant").Namespace(jobNamespace).On("nowhere").Checkpoints(time.Hour).ToCreate()
	queue := &aiplatformv1alpha1.AIJobQueue{ObjectMeta: metav1.ObjectMeta{Name: waitingQueue}}
	waits := builders.AIJob("waits").Namespace(jobNamespace).ToCreate()
	waits.Spec.QueueName = waitingQueue
	for _, object := range []client.Object{&vm, job, queue, waits} {
		require.NoError(t, w.k8s.Create(t.Context(), object))
	}
	for _, expr := range []string{
		`spotinstancevm_condition_false{namespace="` + jobNamespace + `",spot_instance_vm="t4-spot",reason="SecretNotFound"}`,
		`spotinstancejob_condition_false{namespace="` + jobNamespace + `",spot_instance_job="redundant"}`,
		`aijob_queue_depth{queue="` + waitingQueue + `"} == 1`,
		`aijob_submitted_total > 0`,
		`admission_cycle_duration_seconds_count > 0`,
	} {
		eventually(t, "Prometheus knows "+expr, func() bool { return w.prometheus.hasData(t, expr, true) })
	}
}
