package bundle_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"
)

// webhookDefinition is one of the webhookdefinitions of the CSV.
type webhookDefinition struct {
	admissionregistrationv1.MutatingWebhook `json:",inline"`

	Type           string `json:"type"`
	DeploymentName string `json:"deploymentName"`
	GenerateName   string `json:"generateName"`
	ContainerPort  int32  `json:"containerPort"`
	TargetPort     int32  `json:"targetPort"`
	WebhookPath    string `json:"webhookPath"`
}

// OLM installs the webhooks of config/webhook. It knows no match conditions, which spare calls but decide nothing.
func TestOLMInstallsTheWebhooks(t *testing.T) {
	var version struct {
		Spec struct {
			Webhooks []webhookDefinition `json:"webhookdefinitions"`
		} `json:"spec"`
	}
	load(t, manifests+"/spot-training-operator.clusterserviceversion.yaml", &version)

	data, err := os.ReadFile(root + "/config/webhook/manifests.yaml")
	require.NoError(t, err)
	var want []webhookDefinition
	for document := range strings.SplitSeq(strings.TrimPrefix(string(data), "---\n"), "\n---\n") {
		var configuration admissionregistrationv1.MutatingWebhookConfiguration // the other kind has the same fields
		require.NoError(t, yaml.Unmarshal([]byte(document), &configuration))
		for _, webhook := range configuration.Webhooks {
			definition := webhookDefinition{
				MutatingWebhook: webhook, Type: strings.TrimSuffix(configuration.Kind, "WebhookConfiguration") + "AdmissionWebhook",
				DeploymentName: "spot-training-operator-controller-manager", GenerateName: webhook.Name,
				ContainerPort: 443, TargetPort: 9443, WebhookPath: *webhook.ClientConfig.Service.Path,
			}
			definition.Name, definition.MatchConditions, definition.ClientConfig = "", nil, admissionregistrationv1.WebhookClientConfig{}
			want = append(want, definition)
		}
	}
	require.Len(t, want, 6)
	assert.ElementsMatch(t, want, version.Spec.Webhooks)

	for _, deployment := range csv(t).Spec.Install.Spec.Deployments {
		serves := deployment.Name == "spot-training-operator-controller-manager"
		assert.Equal(t, serves, slices.Contains(deployment.Spec.Template.Spec.Containers[0].Args, "--webhook-cert-mode=files"), deployment.Name)
	}
}
