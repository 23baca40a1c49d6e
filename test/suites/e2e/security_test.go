//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// managerLogs are the logs of all pods of the manager.
func managerLogs(t *testing.T) string {
	t.Helper()
	var pods corev1.PodList
	require.NoError(t, cluster.List(t.Context(), &pods, client.InNamespace(operatorNamespace), client.MatchingLabels{"control-plane": "controller-manager"}))
	require.NotEmpty(t, pods.Items)
	var all strings.Builder
	for _, pod := range pods.Items {
		stream, err := cluster.typed.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).Stream(t.Context())
		require.NoError(t, err)
		_, err = io.Copy(&all, stream)
		require.NoError(t, err)
		require.NoError(t, stream.Close())
	}
	return all.String()
}

// A worker that ends with its secrets on its lips has them in no status, event or log line of the operator.
func TestSecretsOfAFailedWorkerAreNotRepeated(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	secret := "planted-" + rand.String(20)
	require.NoError(t, cluster.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "tracking"}, StringData: map[string]string{"password": secret},
	}))
	job := digits(ns, "talkative").alone().obj()
	job.Spec.Env = append(job.Spec.Env, corev1.EnvVar{Name: "TRACKING_PASSWORD", ValueFrom: &corev1.EnvVarSource{
		SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "tracking"}, Key: "password"},
	}})
	job.Spec.Command = []string{"/bin/sh", "-c"}
	job.Spec.Args = []string{`echo "cannot open https://bob:$TRACKING_PASSWORD@mlflow.example.com, password=$TRACKING_PASSWORD"; exit 64`}
	require.NoError(t, cluster.Create(t.Context(), job))
	failed := reaches(t, job, "it is Failed", inState(mlv1.StateFailed))

	assert.Contains(t, failed.Status.FailureReason, "cannot open https://***@mlflow.example.com, password=***", "what is no secret is told")
	pod := workers(t, job)["0"]
	require.Contains(t, log(t.Context(), &pod), secret, "the worker said it")
	status, err := json.Marshal(failed.Status)
	require.NoError(t, err)
	assert.NotContains(t, string(status), secret)
	assert.NotContains(t, managerLogs(t), secret)
	eventually(t, "the event of the failure is there", func(ctx context.Context) (bool, error) {
		events, err := cluster.typed.EventsV1().Events(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		told := false
		for _, event := range events.Items {
			assert.NotContains(t, event.Note, secret, event.Reason)
			told = told || event.Reason == "Failed" && strings.Contains(event.Note, "password=***")
		}
		return told, nil
	})
}

// A job with isolation has the NetworkPolicy before its pods, and trains with it.
func TestIsolatedJobTrains(t *testing.T) {
	t.Parallel()
	job := digits(namespace(t), "isolated").obj()
	job.Spec.Hyperparameters.Epochs = ptr.To[int32](2)
	job.Spec.Networking.Isolation = mlv1.IsolationJob
	require.NoError(t, cluster.Create(t.Context(), job))
	completes(t, job)
	policy, err := cluster.typed.NetworkingV1().NetworkPolicies(job.Namespace).Get(t.Context(), "isolated-training", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"training-job": "isolated"}, policy.Spec.PodSelector.MatchLabels)
}
