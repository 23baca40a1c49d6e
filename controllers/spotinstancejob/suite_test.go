package spotinstancejob

import (
	"flag"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	crds "github.com/dcnlab/spot-training-operator/test/fakes/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
)

// api serves CheckpointBackups in all versions. What a manager finds is its cluster's: see discovery.
var (
	scheme = apiserver.Scheme(apiextensionsv1.AddToScheme, spotv1alpha1.AddToScheme)
	api    = apiserver.New(apiserver.OwnCRDs, apiserver.CRDs(crds.Folder()))
	await  = apiserver.Await
)

func TestMain(m *testing.M) {
	flag.Parse()
	if test := flag.Lookup("test.parallel"); test.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = test.Value.Set("6") // most of the time each test waits
	}
	api.Main(m)
}

// discovery finds one version of CheckpointBackups, whatever else the API server serves; none when it is empty.
type discovery string

func (d discovery) ServerResourcesForGroupVersion(name string) (*metav1.APIResourceList, error) {
	if name != checkpointbackup.GroupKind.Group+"/"+string(d) {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
	}
	return &metav1.APIResourceList{APIResources: []metav1.APIResource{{Kind: checkpointbackup.GroupKind.Kind}}}, nil
}

// serve has a cluster with an API server of its own serve CheckpointBackups in these versions only; none for not at all.
func (c *cluster) serve(versions ...string) {
	t := c.t
	t.Helper()
	crd, err := crds.CRD()
	require.NoError(t, err)
	require.NoError(t, client.IgnoreNotFound(c.Delete(t.Context(), crd.DeepCopy())))
	await(t, "the end of the CRD", func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(crd), &apiextensionsv1.CustomResourceDefinition{}))
	})
	if len(versions) == 0 {
		return
	}
	crd, err = crds.CRD(versions...)
	require.NoError(t, err)
	require.NoError(t, c.Create(t.Context(), crd.DeepCopy()))
	await(t, "the CRD being served", func() bool {
		now := &apiextensionsv1.CustomResourceDefinition{}
		if c.Get(t.Context(), client.ObjectKeyFromObject(crd), now) != nil {
			return false
		}
		for _, condition := range now.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return true
			}
		}
		return false
	})
}
