package rbac_test

import (
	"context"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
	"github.com/dcnlab/spot-training-operator/test/harness/installations"
)

// certMode is where the manager has the certificate of its webhooks from.
func (w *world) certMode() string {
	return installations.CertMode(installations.Arguments(&w.installation.Manager))
}

// servesWebhooks says whether the manager is installed with them.
func (w *world) servesWebhooks() bool {
	return w.certMode() != "off"
}

// warned are what the API server tells a user beside its answers.
type warned struct {
	mu    sync.Mutex
	texts []string
}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (l *warned) HandleWarningHeaderWithContext(_ context.Context, _ int, _ string, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.texts = append(l.texts, text)
}

func (l *warned) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(strings.Join(l.texts, "\n"), text)
}

// webhooksAsk submits jobs that name everything that the webhooks ask the cluster about.
func webhooksAsk(w *world) {
	if !w.servesWebhooks() {
		w.t.Skip("this installation serves no webhooks")
	}
	heard := &warned{}
	config := rest.CopyConfig(w.config)
	config.WarningHandlerWithContext = heard
	user, err := client.New(config, client.Options{Scheme: w.Scheme()})
	require.NoError(w.t, err)
	try := func(object client.Object, warning string) {
		object.SetNamespace(w.namespace)
		w.await("the warning "+warning, func(ctx context.Context) (bool, error) {
			err := user.Create(ctx, object.DeepCopyObject().(client.Object), client.DryRunAll)
			return heard.has(warning), err
		})
	}
	try(builders.TrainingJob("bert").Claim("absent").Spec(func(s *mlv1.TrainingJobSpec) {
		s.ServiceAccountName = "absent"
		s.Scheduling = &mlv1.Scheduling{Priority: "absent", Spot: &mlv1.SpotReference{Name: "absent"}}
		s.Env = []corev1.EnvVar{{Name: "X", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "absent"}, Key: "x",
		}}}}
	}).ToCreate(), "spec.scheduling.priority")
	try(builders.TrainingJob("gpt").Checkpoints().ToCreate(), "StorageClass")
	try(builders.SpotInstanceJob("sweep").On("absent").Spec(func(s *spotv1alpha1.SpotInstanceJobSpec) {
		s.GCPCredentialsSecretRef = &spotv1alpha1.SecretReference{Name: "absent"}
	}).ToCreate(), "spec.gcpCredentialsSecretRef")
}
