package chart_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/dcnlab/spot-training-operator/test/harness/operator"
)

func TestTheChartPassesHelmsOwnChecks(t *testing.T) {
	text, err := helm(t, "lint", "--strict", "--kube-version", "1.37.0", chart)
	require.NoError(t, err, text)
	assert.Contains(t, text, "0 chart(s) failed")
	assert.NotContains(t, text, "[WARNING]")
}

func TestAClusterThatIsTooOldIsRefused(t *testing.T) {
	_, err := helm(t, "template", release, chart, "--kube-version", "1.30.9")
	assert.ErrorContains(t, err, "kubeVersion: >=1.31.0-0")
}

func TestWrongValuesAreRefusedByName(t *testing.T) {
	tests := map[string]struct {
		value string
		says  []string
	}{
		"a value that does not exist":     {"--set=replica=2", []string{"additional properties 'replica' not allowed"}},
		"a misspelled value of a group":   {"--set=image.repo=x", []string{"/image", "additional properties 'repo' not allowed"}},
		"a word for a number":             {"--set=replicas=two", []string{"/replicas", "got string, want integer"}},
		"a log level that does not exist": {"--set=logLevel=trace", []string{"/logLevel", "'debug', 'info', 'warn', 'error'"}},
		"a digest without its algorithm":  {"--set=image.digest=0123", []string{"/image/digest", "sha256"}},
		"a repository with its tag":       {"--set=image.tag=a b", []string{"/image/tag"}},
		"an empty repository":             {"--set=image.repository=", []string{"/image/repository"}},
		"a length of time without a unit": {"--set-string=manager.resync=300", []string{"/manager/resync"}},
		"no requests per second":          {"--set=manager.kubeAPIQPS=0", []string{"/manager/kubeAPIQPS"}},
		"an argument without dashes":      {"--set=manager.extraArgs={leader-elect}", []string{"/manager/extraArgs/0"}},
		"an amount that is none":          {"--set=resources.limits.memory=much", []string{"/resources/limits/memory"}},
		"a mode that does not exist":      {"--set=admissionPolicy.install=yes", []string{"/admissionPolicy/install", "'auto', 'always', 'never'"}},
		"a word for yes":                  {"--set=crds.keep=sure", []string{"/crds/keep", "got string, want boolean"}},
		"a label that the selector is of": {"--set=podLabels.control-plane=x", []string{"/podLabels/control-plane"}},
		"a secret that is no object":      {"--set=imagePullSecrets={pull}", []string{"/imagePullSecrets/0", "got string, want object"}},
		"a pull policy that is none":      {"--set=image.pullPolicy=Sometimes", []string{"/image/pullPolicy", "'Always', 'IfNotPresent', 'Never'"}},
		"egress without an API server": {"--set=networkPolicy.egress.enabled=true", []string{
			"networkPolicy.egress.apiServer.cidrs: is empty", "kubectl get -n default service/kubernetes endpointslices/kubernetes",
		}},
		"an address without its length": {"--set=networkPolicy.egress.apiServer.cidrs={10.96.0.1}", []string{"/networkPolicy/egress/apiServer/cidrs/0"}},
		"a port that is none":           {"--set=networkPolicy.egress.dns.ports={70000}", []string{"/networkPolicy/egress/dns/ports/0"}},
		"a rule for all addresses":      {`--set-json=networkPolicy.egress.manager=[{"ports":[{"port":22}]}]`, []string{"/networkPolicy/egress/manager/0", "'to'"}},
		"a rule for no address":         {`--set-json=networkPolicy.egress.jobService=[{"to":[]}]`, []string{"/networkPolicy/egress/jobService/0/to"}},
		"a rule of ingress": {`--set-json=networkPolicy.egress.manager=[{"from":[{"podSelector":{}}],"to":[{"podSelector":{}}]}]`, []string{
			"/networkPolicy/egress/manager/0", "'from' not allowed",
		}},
		"a provider for a release that asks none": {
			"--set=namespaces={a},networkPolicy.egress.enabled=true,networkPolicy.egress.apiServer.cidrs={10.96.0.1/32},networkPolicy.egress.cloud.enabled=true",
			[]string{"networkPolicy.egress.cloud: a release with namespaces serves no SpotInstanceVMs"},
		},
		"pods that share no jobs": {"--set=jobService.enabled=true,jobService.autoscaling.enabled=true,jobService.existingClaim=jobs", []string{
			"jobService.autoscaling.enabled: pods that keep jobs in jobService.existingClaim do not share them",
		}},
		"more pods than there may be": {"--set=jobService.enabled=true,jobService.autoscaling.enabled=true,jobService.autoscaling.minReplicas=4", []string{
			"jobService.autoscaling.maxReplicas: is less than minReplicas",
		}},
		"nothing to scale by": {"--set=jobService.enabled=true,jobService.autoscaling.enabled=true,jobService.autoscaling.targetCPU=null", []string{
			"jobService.autoscaling.metrics: is empty",
		}},
		"a use of the CPU that is none":    {"--set=jobService.autoscaling.targetCPU=80%", []string{"/jobService/autoscaling/targetCPU"}},
		"a toleration that cannot be told": {`--set-json=tolerations=[{"keys":"x"}]`, []string{"/tolerations/0", "'keys' not allowed"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := helm(t, "template", release, chart, "--kube-version", "1.37.0", test.value)
			require.Error(t, err)
			for _, part := range test.says {
				assert.ErrorContains(t, err, part)
			}
		})
	}
}

// A parent chart hands its global values down.
func TestTheChartCanBePartOfAnother(t *testing.T) {
	render(t, "--set=global.anything=x")
}

func TestTheSchemaKnowsEveryValueAndNoOther(t *testing.T) {
	var values, schema map[string]any
	text, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &values))
	text, err = os.ReadFile(filepath.Join(chart, "values.schema.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &schema))
	compareLevel(t, "", values, schema)
}

func compareLevel(t *testing.T, path string, values map[string]any, schema map[string]any) {
	t.Helper()
	properties, _ := schema["properties"].(map[string]any)
	known := maps.Clone(properties)
	if path == "" {
		delete(known, "global")
	}
	assert.Equal(t, slices.Sorted(maps.Keys(values)), slices.Sorted(maps.Keys(known)), "below %q", path)
	assert.Equal(t, false, schema["additionalProperties"], "a misspelled value below %q must be an error", path)
	for name, value := range values {
		group, ok := value.(map[string]any)
		next, _ := properties[name].(map[string]any)
		if ok && len(group) > 0 && name != "resources" { // whose contents are Kubernetes' own
			compareLevel(t, path+name+".", group, next)
		}
	}
}

// Every value below manager sets a flag of the manager, and the default in its description is the flag's.
func TestValuesOfTheManagerAreItsFlags(t *testing.T) {
	help, err := output(exec.CommandContext(t.Context(), operator.Program(t), "manager", "--help"))
	require.NoError(t, err)
	readme, err := os.ReadFile(filepath.Join(chart, "README.md"))
	require.NoError(t, err)

	for _, test := range []struct{ value, flag, set, told, preset string }{
		{"concurrency", "concurrency", "7", "10", "10"},
		{"resync", "resync", "7s", "5m", "5m0s"},
		{"kubeAPIQPS", "kube-api-qps", "7", "500", "500"},
		{"kubeAPIBurst", "kube-api-burst", "7", "1000", "1000"},
		{"progressInterval", "progress-interval", "7s", "30s", "30s"},
		{"progressWorkers", "progress-workers", "7", "20", "20"},
		{"metricsMaxJobs", "metrics-max-jobs", "7", "500", "500"},
	} {
		deployment := manager(t, "--set=manager."+test.value+"="+test.set)
		assert.Contains(t, deployment.Spec.Template.Spec.Containers[0].Args, "--"+test.flag+"="+test.set)
		assert.Regexp(t, `--`+test.flag+` .*\(default `+test.preset+`\)`, help)
		assert.Regexp(t, "`manager."+test.value+"`.* default, "+test.told+"\\. \\|", string(readme))
	}
}
