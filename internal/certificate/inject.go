package certificate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"github.com/go-logr/logr"
	"gomodules.xyz/jsonpatch/v2"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// called is a webhook of a configuration.
type called struct {
	Name         string
	ClientConfig admissionregistrationv1.WebhookClientConfig
}

// inject has the API server trust the certificate, and call by the token. It is not complete when a configuration does not exist.
func (r *Rotator) inject(ctx context.Context, good *pair, logger logr.Logger) (complete bool, err error) {
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
		patch := injection(seen.Webhooks, good, r.Paths)
		if patch == nil {
			continue
		}
		if text, err = json.Marshal(patch); err != nil {
			return false, fmt.Errorf("encode the client configurations: %w", err)
		}
		if err := r.Client.Patch(ctx, configuration, client.RawPatch(types.JSONPatchType, text)); err != nil {
			return false, fmt.Errorf("write the client configurations of the %T %s: %w", configuration, r.Configuration, err)
		}
		logger.Info("The API server trusts the certificate", "configuration", fmt.Sprintf("%T", configuration), "name", r.Configuration)
	}
	return complete, nil
}

// injection is the patch that gives every webhook the bundle, and those with a path the token; nil when all have them. It changes nothing
// else, so that fields that this client does not know stay, and fails when the webhooks are no longer those that were seen.
func injection(webhooks []called, good *pair, paths map[string]string) []jsonpatch.Operation {
	var patch []jsonpatch.Operation
	for i, webhook := range webhooks {
		at := fmt.Sprintf("/webhooks/%d", i)
		var changes []jsonpatch.Operation
		if !bytes.Equal(webhook.ClientConfig.CABundle, good.caBundle) {
			changes = append(changes, jsonpatch.NewOperation("add", at+"/clientConfig/caBundle", good.caBundle))
		}
		if base := paths[webhook.Name]; base != "" {
			changes = append(changes, redirection(&webhook.ClientConfig, at+"/clientConfig", base+"/"+good.token)...)
		}
		if len(changes) > 0 {
			patch = append(append(patch, jsonpatch.NewOperation("test", at+"/name", webhook.Name)), changes...)
		}
	}
	return patch
}

// redirection is the patch that has a webhook called at a path; nil when it is.
func redirection(config *admissionregistrationv1.WebhookClientConfig, at, want string) []jsonpatch.Operation {
	if config.Service != nil && ptr.Deref(config.Service.Path, "") != want {
		return []jsonpatch.Operation{jsonpatch.NewOperation("add", at+"/service/path", want)}
	}
	if config.URL == nil {
		return nil
	}
	if to, err := url.Parse(*config.URL); err == nil && to.Path != want {
		to.Path = want
		return []jsonpatch.Operation{jsonpatch.NewOperation("add", at+"/url", to.String())}
	}
	return nil
}
