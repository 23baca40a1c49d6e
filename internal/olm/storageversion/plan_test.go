package storageversion

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dcnlab/spot-training-operator/internal/olm/operatorcondition"
)

type version = apiextensionsv1.CustomResourceDefinitionVersion

func TestNeedOf(t *testing.T) {
	beta := version{Name: "v1beta1", Served: true}
	stable := version{Name: "v1", Served: true}
	storing := func(v version) version { v.Storage = true; return v }
	unserved := func(v version) version { v.Served = false; return v }

	tests := map[string]struct {
		versions []version
		stored   []string
		want     need
	}{
		"a CRD that does not exist needs nothing": {},
		"one version": {
			versions: []version{storing(stable)}, stored: []string{"v1"},
			want: need{to: "v1", through: "v1"},
		},
		"two versions, all objects in the newer": {
			versions: []version{storing(stable), beta}, stored: []string{"v1"},
			want: need{to: "v1", through: "v1"},
		},
		"the storage version has changed": {
			versions: []version{storing(stable), beta}, stored: []string{"v1beta1", "v1"},
			want: need{to: "v1", from: []string{"v1beta1"}, through: "v1"},
		},
		"the storage version has changed back": {
			versions: []version{stable, storing(beta)}, stored: []string{"v1beta1", "v1"},
			want: need{to: "v1beta1", from: []string{"v1"}, through: "v1beta1"},
		},
		"two older versions": {
			versions: []version{{Name: "v1alpha1"}, beta, storing(stable)}, stored: []string{"v1alpha1", "v1beta1", "v1"},
			want: need{to: "v1", from: []string{"v1alpha1", "v1beta1"}, through: "v1"},
		},
		"a storage version that is not served is reached through another": {
			versions: []version{beta, storing(unserved(stable))}, stored: []string{"v1beta1", "v1"},
			want: need{to: "v1", from: []string{"v1beta1"}, through: "v1beta1"},
		},
		"no version is served": {
			versions: []version{unserved(beta), storing(unserved(stable))}, stored: []string{"v1beta1", "v1"},
			want: need{to: "v1", from: []string{"v1beta1"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			crd := &apiextensionsv1.CustomResourceDefinition{}
			crd.Spec.Versions, crd.Status.StoredVersions = test.versions, test.stored
			assert.Equal(t, test.want, needOf(crd))
		})
	}
}

func TestVerdict(t *testing.T) {
	const jobs, agents = "trainingjobs.ml.example.com", "agents.aiplatform.example.com"
	progress := NewProgress([]string{jobs, agents})
	set := func(crd string, kind kindProgress) func() {
		return func() { progress.update(crd, func(k *kindProgress) { *k = kind }) }
	}
	needed := need{to: "v1", from: []string{"v1beta1"}, through: "v1"}
	waiting := func(message string) operatorcondition.Verdict {
		return operatorcondition.Verdict{
			Reason:  "StorageMigrationRunning",
			Message: "objects are being stored in the newest version of their kind: " + message,
		}
	}
	upgradeable := operatorcondition.Verdict{
		Upgradeable: true, Reason: "StorageVersionsCurrent",
		Message: "all objects are stored in the newest version of their kind",
	}

	_, known := progress.Verdict()
	assert.False(t, known, "nothing is known at first")
	set(agents, kindProgress{known: true})()
	_, known = progress.Verdict()
	assert.False(t, known, "one kind is not enough")

	steps := []struct {
		name string
		do   func()
		want operatorcondition.Verdict
	}{
		{"a migration is needed", set(jobs, kindProgress{known: true, need: needed}),
			waiting("trainingjobs.ml.example.com from v1beta1 to v1")},
		{"it runs", set(jobs, kindProgress{known: true, need: needed, migrated: 3, total: 10}),
			waiting("trainingjobs.ml.example.com from v1beta1 to v1, 3 of 10 done")},
		{"an object fails", set(jobs, kindProgress{known: true, need: needed, migrated: 9, failed: 1, total: 10, problem: "no"}),
			waiting("trainingjobs.ml.example.com from v1beta1 to v1, 9 of 10 done, 1 failed, will be tried again: no")},
		{"another kind too", set(agents, kindProgress{known: true, need: needed}),
			waiting("agents.aiplatform.example.com from v1beta1 to v1; " +
				"trainingjobs.ml.example.com from v1beta1 to v1, 9 of 10 done, 1 failed, will be tried again: no")},
		{"the first ends", set(jobs, kindProgress{known: true}), waiting("agents.aiplatform.example.com from v1beta1 to v1")},
		{"both have ended", set(agents, kindProgress{known: true}), upgradeable},
	}
	for _, step := range steps {
		step.do()
		got, known := progress.Verdict()
		assert.True(t, known, step.name)
		assert.Equal(t, step.want, got, step.name)
		select {
		case <-progress.Changed():
		default:
			assert.Fail(t, "a change was not told", step.name)
		}
	}
}

func TestContinuation(t *testing.T) {
	expired := apierrors.NewResourceExpired("the list is too old")
	assert.Empty(t, continuation(nil))
	assert.Empty(t, continuation(errors.New("broken")))
	assert.Empty(t, continuation(expired), "the first page has nothing to go on from")
	expired.ErrStatus.ListMeta = metav1.ListMeta{Continue: "here"}
	assert.Equal(t, "here", continuation(expired))
	other := apierrors.NewInternalError(errors.New("broken"))
	other.ErrStatus.ListMeta = metav1.ListMeta{Continue: "here"}
	assert.Empty(t, continuation(other), "another error is an error")
}

func TestShorten(t *testing.T) {
	assert.Equal(t, "short", shorten("short"))
	long := make([]byte, 2000)
	for i := range long {
		long[i] = 'x'
	}
	assert.Len(t, shorten(string(long)), 903)
}
