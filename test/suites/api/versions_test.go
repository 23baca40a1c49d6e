package api_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
)

// The API server converts between the versions of a kind by changing the name of the version only. That loses nothing
// as long as the versions are the same in everything else.
func TestVersionsOfAKindAreTheSame(t *testing.T) {
	for _, crd := range crds(t) {
		t.Run(crd.Spec.Names.Kind, func(t *testing.T) {
			if conversion := crd.Spec.Conversion; conversion != nil {
				assert.Equal(t, apiextensionsv1.NoneConverter, conversion.Strategy)
			}
			first := crd.Spec.Versions[0]
			for _, version := range crd.Spec.Versions {
				assert.True(t, version.Served || !version.Storage, "%s is stored and not served", version.Name)
				assert.Empty(t, cmp.Diff(first.Schema, version.Schema), "schema of %s", version.Name)
				assert.Empty(t, cmp.Diff(first.Subresources, version.Subresources), "subresources of %s", version.Name)
				assert.Empty(t, cmp.Diff(first.AdditionalPrinterColumns, version.AdditionalPrinterColumns), "columns of %s", version.Name)
				assert.Empty(t, cmp.Diff(first.SelectableFields, version.SelectableFields), "selectable fields of %s", version.Name)
			}
		})
	}
}

// What kubectl takes when no version is named.
func TestPreferredVersions(t *testing.T) {
	want := map[string]string{
		"ml.example.com":               "v1",
		"training.training.dcnlab.com": "v1alpha1",
		"aiplatform.example.com":       "v1alpha1",
	}
	groups, err := discovery.NewDiscoveryClientForConfigOrDie(restConfig).ServerGroups()
	require.NoError(t, err)
	got := map[string]string{}
	for _, group := range groups.Groups {
		if _, ours := want[group.Name]; ours {
			got[group.Name] = group.PreferredVersion.Version
		}
	}
	assert.Equal(t, want, got)
}

// v1beta1 was last served by 0.2.0.
func TestTheOlderVersionIsNoLongerServed(t *testing.T) {
	older := object(t, trainingJob)
	older.SetAPIVersion("ml.example.com/v1beta1")
	err := k8s.Create(t.Context(), older)
	require.Error(t, err)
	assert.True(t, meta.IsNoMatchError(err) || apierrors.IsNotFound(err), err.Error())
}
