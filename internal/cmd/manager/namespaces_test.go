package manager

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
)

func TestTheFlagNamespacesGoesBeforeTheEnvironment(t *testing.T) {
	for name, test := range map[string]struct {
		environment string
		arguments   []string
		want        []string
	}{
		"neither":                             {want: []string{}},
		"what OLM sets for all namespaces":    {environment: "", want: []string{}},
		"what OLM sets for some":              {environment: "team-a,team-b", want: []string{"team-a", "team-b"}},
		"a list with spaces":                  {environment: " team-a, ,team-b ", want: []string{"team-a", "team-b"}},
		"the flag":                            {arguments: []string{"--namespaces=team-a,team-b"}, want: []string{"team-a", "team-b"}},
		"both":                                {environment: "team-a", arguments: []string{"--namespaces=team-b"}, want: []string{"team-b"}},
		"the flag for all where OLM has some": {environment: "team-a", arguments: []string{"--namespaces="}, want: []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(namespacesVariable, test.environment)
			command := New()
			require.NoError(t, command.ParseFlags(test.arguments))
			got, err := command.Flags().GetStringSlice("namespaces")
			require.NoError(t, err)
			assert.Equal(t, test.want, got)
		})
	}
}

func TestNamespacesAreChecked(t *testing.T) {
	for name, test := range map[string]struct {
		options options
		want    string
	}{
		"all, with all that a manager of all may have": {options: options{
			settings: build.Settings{RequireQueue: true}, webhooks: webhookOptions{certMode: certificateSelf},
		}},
		"some":                         {options: options{namespaces: namespaces{"team-a", "2024"}, webhooks: webhookOptions{certMode: certificateFiles}}},
		"what is no name":              {options: options{namespaces: namespaces{"team-a", "Team_B"}}, want: `--namespaces: "Team_B" is not the name of a namespace`},
		"some, and jobs need a queue":  {options: options{namespaces: namespaces{"a"}, settings: build.Settings{RequireQueue: true}}, want: "--require-queue: no job would start"},
		"some, and their own webhooks": {options: options{namespaces: namespaces{"a"}, webhooks: webhookOptions{certMode: certificateSelf}}, want: "--webhook-cert-mode: self writes"},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.options.namespaces.validate(test.options)
			if test.want == "" {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, test.want)
		})
	}
}

// What a manager of some namespaces may not list its cache must not have: the manager would wait for it and never start.
func TestTheCacheHoldsTheNamespacesOnly(t *testing.T) {
	all, some := cacheOptions(options{}), cacheOptions(options{namespaces: namespaces{"team-a", "team-b"}})
	assert.Empty(t, all.DefaultNamespaces)
	assert.Equal(t, map[string]cache.Config{"team-a": {}, "team-b": {}}, some.DefaultNamespaces)
	assert.Contains(t, kindsIn(all.ByObject), "*v1.CertificateSigningRequest")
	assert.NotContains(t, kindsIn(some.ByObject), "*v1.CertificateSigningRequest")
	assert.NotContains(t, kindsIn(some.ByObject), "*v1.Deployment")
	for object, of := range some.ByObject {
		if _, cluster := object.(*corev1.Node); !cluster {
			assert.Empty(t, of.Namespaces, "%T: those of the whole cache count", object)
		}
	}
}

func kindsIn(objects map[client.Object]cache.ByObject) (kinds []string) {
	for object := range objects {
		kinds = append(kinds, fmt.Sprintf("%T", object))
	}
	return kinds
}
