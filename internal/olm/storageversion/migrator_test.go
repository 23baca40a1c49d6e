package storageversion

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/internal/olm/operatorcondition"
)

func TestMigratesStoredObjects(t *testing.T) {
	t.Parallel()
	k := newKind(t, "v1beta1")
	k.create(30)
	require.Equal(t, map[string]int{"v1beta1": 30}, k.stored())
	before := k.contents()
	k.storeAs("v1")
	require.Equal(t, map[string]int{"v1beta1": 30}, k.stored(), "the API server itself leaves them as they are")

	r := k.start(&traffic{})

	r.awaitUpgradeable(true)
	k.awaitStored("v1")
	assert.Equal(t, map[string]int{"v1": 30}, k.stored())
	assert.Empty(t, cmp.Diff(before, k.contents()), "generation, spec, status and the rest are as before")
	assert.Len(t, r.made(http.MethodPatch, "/namespaces/default/trainingjobs/"), 30)
	assert.Len(t, r.made(http.MethodPatch, "/"+k.crd+"/status"), 1)
	assert.EqualValues(t, 30, r.metric(k, "storage_migration_objects_total"))
	assert.EqualValues(t, 0, r.metric(k, "storage_migration_remaining_objects"))
	assert.EqualValues(t, 0, r.metric(k, "storage_migration_failures_total"))
	assert.Equal(t, "Normal StorageMigrated All objects (30) are stored as v1; none is stored as v1beta1 any more", <-r.events)

	// The version that is no longer stored can go.
	k.change(func(crd *apiextensionsv1.CustomResourceDefinition) { crd.Spec.Versions = crd.Spec.Versions[:1] })
	assert.Len(t, k.contents(), 30)
}

func TestMigratesWhenTheCRDChangesLater(t *testing.T) {
	t.Parallel()
	k := newKind(t, "v1beta1")
	k.create(5)
	r := k.start(&traffic{})
	r.awaitUpgradeable(true)
	changed := time.Now()

	k.storeAs("v1")

	k.awaitStored("v1")
	assert.Equal(t, map[string]int{"v1": 5}, k.stored())
	first := r.made(http.MethodPatch, "/namespaces/default/trainingjobs/")[0]
	assert.GreaterOrEqual(t, first.at.Sub(changed), time.Second, "other API servers need a moment to hear of the change")
}

func TestNothingToMigrateCostsOneRead(t *testing.T) {
	t.Parallel()
	k := newKind(t, "v1")
	k.create(3)

	r := k.start(&traffic{}, func(o *Options) { o.Resync = time.Hour })

	r.awaitUpgradeable(true)
	assert.Len(t, r.made(http.MethodGet, "/"+k.crd), 1)
	assert.Empty(t, r.made(http.MethodGet, "/"+k.group+"/"), "the objects are not listed")
	assert.Empty(t, r.made(http.MethodPatch, "/"))
}

func TestEveryResyncCostsOneRead(t *testing.T) {
	t.Parallel()
	k := newKind(t, "v1")

	r := k.start(&traffic{}, func(o *Options) { o.Resync = time.Second })

	require.Eventually(t, func() bool { return len(r.made(http.MethodGet, "/"+k.crd)) >= 3 }, patience, 50*time.Millisecond)
	assert.Empty(t, r.made(http.MethodGet, "/"+k.group+"/"))
	assert.Empty(t, r.made(http.MethodPatch, "/"))
}

func TestCRDThatDoesNotExistNeedsNothing(t *testing.T) {
	t.Parallel()
	k := newKind(t, "v1")
	k.crd = "nothing." + k.group
	k.start(&traffic{}).awaitUpgradeable(true)
}

func TestGoesOnAfterACrash(t *testing.T) {
	t.Parallel()
	k := newKind(t, "v1beta1")
	k.create(20)
	k.storeAs("v1")
	reached := make(chan struct{})
	first := k.start(&traffic{before: nth(1, http.MethodPatch, "/job-007", func(request *http.Request) {
		close(reached)
		<-request.Context().Done() // it will not be sent any more
	})})
	<-reached
	first.cancel()
	first.stop()
	require.Equal(t, map[string]int{"v1": 7, "v1beta1": 13}, k.stored())
	require.Equal(t, []string{"v1beta1", "v1"}, k.definition().Status.StoredVersions)

	k.start(&traffic{})

	k.awaitStored("v1")
	assert.Equal(t, map[string]int{"v1": 20}, k.stored())
}

// Rewriting objects that are stored in the right version already writes nothing into the API server's storage.
func TestSecondRoundWritesNothing(t *testing.T) {
	t.Parallel()
	k := newKind(t, "v1")
	k.create(5)
	versions := k.resourceVersions()
	// As after a crash between the last object and the CRD.
	crd := k.definition()
	crd.Status.StoredVersions = []string{"v1beta1", "v1"}
	require.NoError(t, k.Status().Update(t.Context(), crd))

	r := k.start(&traffic{})

	k.awaitStored("v1")
	assert.Len(t, r.made(http.MethodPatch, "/namespaces/default/trainingjobs/"), 5)
	assert.Equal(t, versions, k.resourceVersions())
}

// An object that the API server does not let through, here for a policy of the cluster.
func TestOneBadObjectDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	k := newKind(t, "v1beta1")
	k.create(10)
	k.storeAs("v1")
	allow := k.forbid("job-003")

	r := k.start(&traffic{})

	message := ""
	require.Eventually(t, func() bool {
		message = r.awaitUpgradeable(false)
		return strings.Contains(message, "will be tried again")
	}, patience, 20*time.Millisecond)
	assert.Contains(t, message, "9 of 10 done, 1 failed")
	assert.Contains(t, message, "default/job-003")
	assert.Contains(t, message, "job-003 is frozen")
	event := <-r.events
	assert.Contains(t, event, "Warning StorageMigrationFailed Not all objects are stored as v1 yet, will be tried again")
	assert.Contains(t, event, "job-003 is frozen")
	assert.Equal(t, map[string]int{"v1": 9, "v1beta1": 1}, k.stored())
	assert.Equal(t, []string{"v1beta1", "v1"}, k.definition().Status.StoredVersions)
	assert.Positive(t, r.metric(k, "storage_migration_failures_total"))

	allow()

	k.awaitStored("v1")
	assert.Equal(t, map[string]int{"v1": 10}, k.stored())
	r.awaitUpgradeable(true)
}

// A round ends early when everything fails.
func TestRoundEndsWhenEverythingFails(t *testing.T) {
	t.Parallel()
	k := newKind(t, "v1beta1")
	k.create(40)
	k.storeAs("v1")
	k.forbid("job-")

	r := k.start(&traffic{}, func(o *Options) { o.Retry, o.RetryLimit = time.Hour, time.Hour })

	assert.Contains(t, <-r.events, "20 objects failed in a row")
	assert.Len(t, r.made(http.MethodPatch, "/namespaces/default/trainingjobs/"), 20)
}

func TestKeepsToTheRate(t *testing.T) {
	t.Parallel()
	k := newKind(t, "v1beta1")
	k.create(20)
	k.storeAs("v1")

	r := k.start(&traffic{}, func(o *Options) { o.QPS = 10 })

	k.awaitStored("v1")
	patches := r.made(http.MethodPatch, "/namespaces/default/trainingjobs/")
	require.Len(t, patches, 20)
	took := patches[19].at.Sub(patches[0].at)
	assert.GreaterOrEqual(t, took, 1700*time.Millisecond, "20 objects, 2 of them at once, 10 per second")
}

func TestUpgradesAreHeldBackFirst(t *testing.T) {
	t.Parallel()
	k := newKind(t, "v1beta1")
	k.create(3)
	k.storeAs("v1")
	var mu sync.Mutex
	var held []operatorcondition.Verdict
	allowed := false
	traffic := &traffic{before: nth(1, http.MethodPatch, "/job-000", func(*http.Request) {
		mu.Lock()
		defer mu.Unlock()
		assert.True(t, allowed, "an object was written before upgrades were held back")
	})}

	r := k.start(traffic, func(o *Options) {
		o.Hold = func(_ context.Context, verdict operatorcondition.Verdict) error {
			mu.Lock()
			defer mu.Unlock()
			held = append(held, verdict)
			if len(held) < 3 {
				return errors.New("not yet")
			}
			allowed = true
			return nil
		}
	})

	k.awaitStored("v1")
	r.awaitUpgradeable(true)
	mu.Lock()
	defer mu.Unlock()
	assert.GreaterOrEqual(t, len(held), 3)
	assert.Equal(t, operatorcondition.Verdict{
		Reason:  "StorageMigrationRunning",
		Message: "objects are being stored in the newest version of their kind: " + k.crd + " from v1beta1 to v1",
	}, held[0])
}

func TestNeeded(t *testing.T) {
	t.Parallel()
	k := newKind(t, "v1beta1")
	crds := []string{k.crd, "nothing.example.com"}
	verdict, err := Needed(t.Context(), k, crds)
	require.NoError(t, err)
	assert.True(t, verdict.Upgradeable)

	k.storeAs("v1")
	verdict, err = Needed(t.Context(), k, crds)
	require.NoError(t, err)
	assert.False(t, verdict.Upgradeable)
	assert.Contains(t, verdict.Message, k.crd+" from v1beta1 to v1")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Needed(ctx, k, crds)
	assert.ErrorContains(t, err, "read the CRD "+k.crd)
}

// resourceVersions of all objects.
func (k *kind) resourceVersions() map[string]string {
	k.t.Helper()
	list := k.list()
	require.NoError(k.t, k.List(k.t.Context(), list))
	versions := map[string]string{}
	for _, item := range list.Items {
		versions[item.GetName()] = item.GetResourceVersion()
	}
	return versions
}

// forbid has the API server refuse writes of objects whose name begins so, and returns what ends that.
func (k *kind) forbid(prefix string) (allow func()) {
	k.t.Helper()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{}
	policy.Name = "frozen." + k.group
	policy.Spec = admissionregistrationv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: ptr.To(admissionregistrationv1.Fail),
		MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{k.group}, APIVersions: []string{"*"}, Resources: []string{"trainingjobs"},
				},
			},
		}}},
		Validations: []admissionregistrationv1.Validation{{
			Expression:        "!object.metadata.name.startsWith(" + strconv.Quote(prefix) + ")",
			MessageExpression: "object.metadata.name + ' is frozen'",
		}},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
	binding.Name = policy.Name
	binding.Spec = admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName:        policy.Name,
		ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
	}
	require.NoError(k.t, k.Create(k.t.Context(), policy))
	require.NoError(k.t, k.Create(k.t.Context(), binding))
	allow = sync.OnceFunc(func() {
		assert.NoError(k.t, client.IgnoreNotFound(k.Delete(context.Background(), binding)))
		assert.NoError(k.t, client.IgnoreNotFound(k.Delete(context.Background(), policy)))
	})
	k.t.Cleanup(allow)
	// The API server takes a moment to heed a policy.
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(k.list().GroupVersionKind())
	object.Kind, object.Name, object.Namespace = "TrainingJob", "job-003", "default"
	require.Eventually(k.t, func() bool {
		probe := object.DeepCopy()
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata": {"labels": {"probe": "yes"}}}`))
		return k.Patch(k.t.Context(), probe, patch, client.DryRunAll) != nil
	}, patience, 50*time.Millisecond)
	return allow
}
