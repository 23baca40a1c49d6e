package webhook_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/dcnlab/spot-training-operator/internal/certificate"
)

var certificateSecret = types.NamespacedName{Namespace: operatorNamespace, Name: "spot-training-operator-webhook-certificate"}

// keep runs what keeps the certificate, with the operator's permissions, until the test ends or stop is called.
func keep(t *testing.T, clock *clocktesting.FakeClock, validity time.Duration) (rotator *certificate.Rotator, stop func()) {
	t.Helper()
	asOperator := rest.CopyConfig(restConfig)
	asOperator.Impersonate = rest.ImpersonationConfig{UserName: operatorUser, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	cluster, err := client.New(asOperator, client.Options{Scheme: scheme})
	require.NoError(t, err)
	rotator = &certificate.Rotator{
		Name: "webhook-certificate", Client: cluster, Clock: clock, Secret: certificateSecret, Configuration: configuration,
		Hosts: []string{"webhook.example.com", "127.0.0.1"}, Validity: validity,
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- rotator.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(stop)
	return rotator, stop
}

func forgetCertificate(t *testing.T) {
	t.Helper()
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = certificateSecret.Namespace, certificateSecret.Name
	require.NoError(t, client.IgnoreNotFound(k8s.Delete(context.Background(), secret)))
}

// served is the certificate that a rotator hands out; nil when it has none.
func served(rotator *certificate.Rotator) *x509.Certificate {
	certificate, err := rotator.GetCertificate(&tls.ClientHelloInfo{})
	if err != nil {
		return nil
	}
	return certificate.Leaf
}

// trusted says whether both configurations have the API server trust the certificate.
func trusted(t *testing.T, leaf *x509.Certificate) bool {
	t.Helper()
	bundles := caBundles(t)
	for _, bundle := range bundles {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(bundle)
		if _, err := leaf.Verify(x509.VerifyOptions{DNSName: "127.0.0.1", Roots: pool}); err != nil {
			return false
		}
	}
	return len(bundles) == 6 // two that mutate, four that validate
}

// caBundles are those of all webhooks of both configurations.
func caBundles(t *testing.T) (list [][]byte) {
	t.Helper()
	var mutating admissionregistrationv1.MutatingWebhookConfiguration
	require.NoError(t, k8s.Get(t.Context(), client.ObjectKey{Name: configuration}, &mutating))
	for _, webhook := range mutating.Webhooks {
		list = append(list, webhook.ClientConfig.CABundle)
	}
	var validating admissionregistrationv1.ValidatingWebhookConfiguration
	require.NoError(t, k8s.Get(t.Context(), client.ObjectKey{Name: configuration}, &validating))
	for _, webhook := range validating.Webhooks {
		list = append(list, webhook.ClientConfig.CABundle)
	}
	return list
}

// installBare installs the configurations as they are in config/, without anything that a test server needs.
func installBare(t *testing.T) {
	t.Helper()
	options := envtest.WebhookInstallOptions{Paths: []string{manifests}}
	require.NoError(t, options.PrepWithoutInstalling())
	require.NoError(t, options.Cleanup())
	for _, object := range options.MutatingWebhooks {
		for i := range object.Webhooks {
			object.Webhooks[i].ClientConfig.CABundle = nil
		}
		require.NoError(t, k8s.Create(t.Context(), object))
	}
	for _, object := range options.ValidatingWebhooks {
		for i := range object.Webhooks {
			object.Webhooks[i].ClientConfig.CABundle = nil
		}
		require.NoError(t, k8s.Create(t.Context(), object))
	}
	t.Cleanup(func() { uninstall(t) })
}

// deploy applies the configurations as make deploy does.
func deploy(t *testing.T) {
	t.Helper()
	for _, document := range documents(readFile(t, manifests)) {
		object := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal(document, &object.Object))
		require.NoError(t, k8s.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("kubectl"), client.ForceOwnership))
	}
	t.Cleanup(func() { uninstall(t) })
}

// Replicas share one certificate, whichever makes it; it is renewed in time, and what one still serves stays trusted.
func TestTheCertificateIsKept(t *testing.T) {
	t.Cleanup(func() { forgetCertificate(t) })
	clock := clocktesting.NewFakeClock(time.Now())
	one, stopOne := keep(t, clock, 9*time.Hour)
	two, stopTwo := keep(t, clock, 9*time.Hour)
	same := func() bool { return served(one) != nil && served(two) != nil && served(one).Equal(served(two)) }

	// Before the configurations are installed, and whichever of the two is first.
	eventually(t, "both serve the same certificate", func() bool { clock.Step(time.Second); return same() })
	first := served(one)

	deploy(t)
	eventually(t, "the API server trusts it", func() bool { clock.Step(time.Second); return trusted(t, first) })
	deploy(t)
	assert.True(t, trusted(t, first), "deploying again changes nothing")

	// Configurations that were deleted and installed again.
	uninstall(t)
	deploy(t)
	clock.Step(2 * time.Minute)
	eventually(t, "the API server trusts it again", func() bool { clock.Step(time.Second); return trusted(t, first) })

	// A renewal: of 9 hours the last third has begun. What is issued begins at the real time, so that it has to last
	// longer to be good at the test's.
	stopOne()
	stopTwo()
	before := caBundles(t)[0]
	clock.SetTime(first.NotAfter.Add(-150 * time.Minute))
	one, _ = keep(t, clock, 900*time.Hour)
	two, _ = keep(t, clock, 900*time.Hour)
	eventually(t, "both serve another certificate", func() bool {
		clock.Step(time.Second)
		return same() && !served(one).Equal(first)
	})
	assert.NotEqual(t, before, caBundles(t)[0])
	assert.True(t, trusted(t, served(one)), "it was trusted before it was served")
	assert.True(t, trusted(t, first), "what a replica may still serve is trusted too")

	// A Secret that was deleted.
	second := served(one)
	forgetCertificate(t)
	eventually(t, "both serve another certificate", func() bool {
		clock.Step(10 * time.Second)
		return same() && !served(one).Equal(second)
	})
	assert.True(t, trusted(t, served(one)))

	var secret corev1.Secret
	require.NoError(t, k8s.Get(t.Context(), certificateSecret, &secret))
	assert.Equal(t, corev1.SecretTypeTLS, secret.Type)
	assert.NotContains(t, secret.Data, "ca.key", "the authority's key is kept nowhere")
}
