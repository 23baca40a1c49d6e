package rbac_test

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// spoilt is what a certificate begins with that cannot be used.
const spoilt = "spoilt at "

// certificates are what managers make themselves: the Secrets, and the ConfigMaps with their authorities.
func (w *world) certificates(ctx context.Context) (made []*corev1.Secret, published []*corev1.ConfigMap, err error) {
	inNamespace := client.InNamespace(w.installation.Namespace)
	var secrets corev1.SecretList
	if err := w.List(ctx, &secrets, inNamespace); err != nil {
		return nil, nil, err
	}
	for i := range secrets.Items {
		if secrets.Items[i].Type == corev1.SecretTypeTLS {
			made = append(made, &secrets.Items[i])
		}
	}
	var configMaps corev1.ConfigMapList
	if err := w.List(ctx, &configMaps, inNamespace); err != nil {
		return nil, nil, err
	}
	for i := range configMaps.Items {
		if strings.HasSuffix(configMaps.Items[i].Name, "-ca") {
			published = append(published, &configMaps.Items[i])
		}
	}
	return made, published, nil
}

// spoilCertificates has the next manager renew the certificates that managers make themselves, and publish their authorities again.
func (w *world) spoilCertificates() {
	w.t.Helper()
	made, published, err := w.certificates(w.t.Context())
	require.NoError(w.t, err)
	require.NotEmpty(w.t, made, "of the webhooks, or of the job service")
	text := spoilt + time.Now().String()
	for _, secret := range made {
		before := secret.DeepCopy()
		secret.Data["tls.crt"] = []byte(text)
		require.NoError(w.t, w.Patch(w.t.Context(), secret, client.MergeFrom(before)))
	}
	for _, configMap := range published {
		before := configMap.DeepCopy()
		configMap.Data["ca.crt"] = text
		require.NoError(w.t, w.Patch(w.t.Context(), configMap, client.MergeFrom(before)))
	}
}

// awaitCertificates waits until they are good again.
func (w *world) awaitCertificates() {
	w.t.Helper()
	w.await("new certificates", func(ctx context.Context) (bool, error) {
		made, published, err := w.certificates(ctx)
		good := err == nil
		for _, secret := range made {
			good = good && !bytes.HasPrefix(secret.Data["tls.crt"], []byte(spoilt))
		}
		for _, configMap := range published {
			good = good && !strings.HasPrefix(configMap.Data["ca.crt"], spoilt)
		}
		return good, err
	})
}
