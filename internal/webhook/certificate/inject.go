package certificate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"gomodules.xyz/jsonpatch/v2"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// called is a webhook of a configuration.
type called struct {
	Name         string
	ClientConfig admissionregistrationv1.WebhookClientConfig
}

// inject has the API server trust the certificate. It is not complete when a configuration does not exist.
func (r *Rotator) inject(ctx context.Context, bundle []byte, logger logr.Logger) (complete bool, err error) {
	complete = true
	for _, configuration := range []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{},
	} {
		err := r.Client.Get(ctx, client.ObjectKey{Name: r.Configuration}, configuration)
		if apierrors.IsNotFound(err) {
			complete = false
			continue
		}
		if err != nil {
			return false, fmt.Errorf("read the %T %s: %w", configuration, r.Configuration, err)
		}
		var seen struct{ Webhooks []called }
		text, err := json.Marshal(configuration)
		if err = errors.Join(err, json.Unmarshal(text, &seen)); err != nil {
			return false, fmt.Errorf("read the webhooks of the %T %s: %w", configuration, r.Configuration, err)
		}
		patch := injection(seen.Webhooks, bundle)
		if patch == nil {
			continue
		}
		if text, err = json.Marshal(patch); err != nil {
			return false, fmt.Errorf("encode the caBundle: %w", err)
		}
		if err := r.Client.Patch(ctx, configuration, client.RawPatch(types.JSONPatchType, text)); err != nil {
			return false, fmt.Errorf("write the caBundle of the %T %s: %w", configuration, r.Configuration, err)
		}
		logger.Info("The API server trusts the certificate", "configuration", fmt.Sprintf("%T", configuration), "name", r.Configuration)
	}
	return complete, nil
}

// injection is the patch that gives every webhook the bundle; nil when all have it. It changes nothing else, so that
// fields that this client does not know stay, and fails when the webhooks are no longer those that were seen.
func injection(webhooks []called, bundle []byte) []jsonpatch.Operation {
	var patch []jsonpatch.Operation
	for i, webhook := range webhooks {
		if bytes.Equal(webhook.ClientConfig.CABundle, bundle) {
			continue
		}
		at := fmt.Sprintf("/webhooks/%d", i)
		patch = append(patch,
			jsonpatch.NewOperation("test", at+"/name", webhook.Name),
			jsonpatch.NewOperation("add", at+"/clientConfig/caBundle", bundle),
		)
	}
	return patch
}
