package operatorcondition

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patience bounds every wait.
const patience = 30 * time.Second

var (
	running = Verdict{Reason: "StorageMigrationRunning", Message: "3 of 10 done"}
	current = Verdict{Upgradeable: true, Reason: "StorageVersionsCurrent", Message: "all done"}
)

// installation is what OLM makes for a ClusterServiceVersion: the OperatorCondition, and the permission to use it.
type installation struct {
	client.Client
	t   *testing.T
	key types.NamespacedName
	// asOperator is a client with the permissions that OLM gives the operator.
	asOperator client.Client
}

func install(t *testing.T) *installation {
	t.Helper()
	admin, err := client.New(api.Config(t), client.Options{Scheme: scheme})
	require.NoError(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "olm-"}}
	require.NoError(t, admin.Create(t.Context(), namespace))
	i := &installation{Client: admin, t: t, key: types.NamespacedName{Namespace: namespace.Name, Name: "spot-training-operator.v0.2.0"}}
	i.grant()
	config := api.Config(t)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace.Name + ":controller-manager", Groups: []string{"system:authenticated"},
	}
	i.asOperator, err = client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	return i
}

// grant gives the operator the Role that OLM gives it.
func (i *installation) grant() {
	i.t.Helper()
	about := metav1.ObjectMeta{Namespace: i.key.Namespace, Name: i.key.Name}
	require.NoError(i.t, i.Create(i.t.Context(), &rbacv1.Role{ObjectMeta: about, Rules: []rbacv1.PolicyRule{{
		Verbs: []string{"get", "update", "patch"}, APIGroups: []string{"operators.coreos.com"},
		Resources: []string{"operatorconditions"}, ResourceNames: []string{i.key.Name},
	}}}))
	require.NoError(i.t, i.Create(i.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: about,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: i.key.Name},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: i.key.Namespace, Name: "controller-manager"}},
	}))
}

// create makes the OperatorCondition, with a condition of another owner.
func (i *installation) create() {
	i.t.Helper()
	require.NoError(i.t, i.Create(i.t.Context(), &operatorsv2.OperatorCondition{
		ObjectMeta: metav1.ObjectMeta{Namespace: i.key.Namespace, Name: i.key.Name},
		Spec: operatorsv2.OperatorConditionSpec{
			Deployments: []string{"controller-manager"},
			Conditions:  []metav1.Condition{{Type: "Other", Status: metav1.ConditionTrue, Reason: "Kept", LastTransitionTime: metav1.Now()}},
		},
	}))
}

func (i *installation) read() *operatorsv2.OperatorCondition {
	i.t.Helper()
	object := &operatorsv2.OperatorCondition{}
	require.NoError(i.t, i.Get(i.t.Context(), i.key, object))
	return object
}

// says returns the condition Upgradeable as a verdict, or nothing.
func (i *installation) says() Verdict {
	object := &operatorsv2.OperatorCondition{}
	if err := i.Get(i.t.Context(), i.key, object); err != nil {
		return Verdict{Reason: err.Error()}
	}
	c := meta.FindStatusCondition(object.Spec.Conditions, "Upgradeable")
	if c == nil {
		return Verdict{}
	}
	return Verdict{Upgradeable: c.Status == metav1.ConditionTrue, Reason: c.Reason, Message: c.Message}
}

func (i *installation) await(want Verdict) {
	i.t.Helper()
	require.Eventually(i.t, func() bool { return i.says() == want }, patience, 10*time.Millisecond, "%+v, want %+v", i.says(), want)
}

// opinion is a verdict that a test changes.
type opinion struct {
	mu      sync.Mutex
	verdict Verdict
	known   bool
	changed chan struct{}
}

func newOpinion() *opinion { return &opinion{changed: make(chan struct{}, 1)} }

func (o *opinion) get() (Verdict, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.verdict, o.known
}

func (o *opinion) set(verdict Verdict) {
	o.mu.Lock()
	o.verdict, o.known = verdict, true
	o.mu.Unlock()
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

func (i *installation) keeper(o *opinion, changes ...func(*Options)) *Keeper {
	options := Options{
		Key: i.key, Client: i.asOperator, Verdict: o.get, Changed: o.changed,
		Interval: time.Nanosecond, Retry: 50 * time.Millisecond,
	}
	for _, change := range changes {
		change(&options)
	}
	return NewKeeper(options)
}

// start runs something for the time of a test.
func start(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			assert.NoError(t, err)
		case <-time.After(patience):
			assert.Fail(t, "it does not stop")
		}
	})
}

func TestKeeperFollowsTheVerdict(t *testing.T) {
	i := install(t)
	i.create()
	o := newOpinion()
	start(t, i.keeper(o).Start)

	o.set(running)
	i.await(running)
	more := Verdict{Reason: running.Reason, Message: "7 of 10 done"}
	o.set(more)
	i.await(more)
	o.set(current)
	i.await(current)
	assert.True(t, meta.IsStatusConditionTrue(i.read().Spec.Conditions, "Other"), "the conditions of others stay")
	assert.Equal(t, []string{"controller-manager"}, i.read().Spec.Deployments)
}

func TestKeeperWaitsForAVerdict(t *testing.T) {
	i := install(t)
	i.create()
	o := newOpinion()
	start(t, i.keeper(o).Start)
	o.changed <- struct{}{}
	require.Eventually(t, func() bool { return len(o.changed) == 0 }, patience, time.Millisecond)
	assert.Equal(t, Verdict{}, i.says())
	o.set(current)
	i.await(current)
}

func TestKeeperWritesOnlyWhatChanged(t *testing.T) {
	i := install(t)
	i.create()
	o := newOpinion()
	o.set(current)
	start(t, i.keeper(o).Start)
	i.await(current)
	before := i.read().ResourceVersion
	o.set(current)
	require.Eventually(t, func() bool { return len(o.changed) == 0 }, patience, time.Millisecond)
	other := Verdict{Upgradeable: true, Reason: "Other", Message: "to see that the one before was dealt with"}
	assert.Equal(t, before, i.read().ResourceVersion)
	o.set(other)
	i.await(other)
}

// Counts change with every object; OLM need not hear of each.
func TestKeeperTakesItsTimeForMessages(t *testing.T) {
	i := install(t)
	i.create()
	o := newOpinion()
	start(t, i.keeper(o, func(options *Options) { options.Interval = time.Hour }).Start)
	o.set(running)
	i.await(running)
	for n := range 20 {
		o.set(Verdict{Reason: running.Reason, Message: fmt.Sprint(n)})
		require.Eventually(t, func() bool { return len(o.changed) == 0 }, patience, time.Millisecond)
	}
	assert.Equal(t, running, i.says())
	o.set(current)
	i.await(current)
}

func TestKeeperTriesAgain(t *testing.T) {
	i := install(t)
	o := newOpinion()
	o.set(running)
	start(t, i.keeper(o).Start)
	i.create() // OLM makes it a moment after the Deployment
	i.await(running)
}

func TestKeeperPutsBackWhatOthersChange(t *testing.T) {
	i := install(t)
	i.create()
	o := newOpinion()
	o.set(current)
	start(t, i.keeper(o, func(options *Options) { options.Resync = 50 * time.Millisecond }).Start)
	i.await(current)
	object := i.read()
	meta.SetStatusCondition(&object.Spec.Conditions, metav1.Condition{Type: "Upgradeable", Status: metav1.ConditionFalse, Reason: "Other"})
	require.NoError(t, i.Update(t.Context(), object))
	i.await(current)
}

// Without OLM's OperatorConditions there is nothing to write to.
func TestClusterWithoutOLM(t *testing.T) {
	elsewhere := runtime.NewScheme()
	elsewhere.AddKnownTypeWithName(schema.GroupVersionKind{Group: "unserved.example.com", Version: "v2", Kind: "OperatorCondition"},
		&operatorsv2.OperatorCondition{})
	c, err := client.New(api.Config(t), client.Options{Scheme: elsewhere})
	require.NoError(t, err)
	keeper := NewKeeper(Options{Key: types.NamespacedName{Namespace: "default", Name: "any"}, Client: c})
	assert.NoError(t, keeper.Hold(t.Context(), running))
}

func TestMissingPermissionIsTold(t *testing.T) {
	i := install(t)
	i.create()
	i.key.Name = "spot-training-operator.v0.1.0"
	err := i.keeper(newOpinion()).Hold(t.Context(), running)
	assert.ErrorContains(t, err, "write the condition Upgradeable of the OperatorCondition "+i.key.String())
	assert.ErrorContains(t, err, "forbidden")
}

func TestGateOpensWhenOLMHasBeenTold(t *testing.T) {
	i := install(t)
	gate := NewGate(i.keeper(newOpinion()), func(context.Context) (Verdict, error) { return running, nil }, 20*time.Millisecond)
	assert.ErrorContains(t, gate.Check(nil), "has not looked yet")
	start(t, gate.Start)
	require.Eventually(t, func() bool {
		err := gate.Check(nil)
		return err != nil && apierrors.IsNotFound(err)
	}, patience, 5*time.Millisecond, "not ready while the OperatorCondition is missing")

	i.create()

	require.Eventually(t, func() bool { return gate.Check(nil) == nil }, patience, 5*time.Millisecond)
	assert.Equal(t, running, i.says())
	assert.False(t, gate.NeedLeaderElection())
}

func TestGateOpensWithoutAWriteWhenNothingIsNeeded(t *testing.T) {
	i := install(t)
	i.create()
	gate := NewGate(i.keeper(newOpinion()), func(context.Context) (Verdict, error) { return current, nil }, time.Hour)
	start(t, gate.Start)
	require.Eventually(t, func() bool { return gate.Check(nil) == nil }, patience, 5*time.Millisecond)
	assert.Equal(t, Verdict{}, i.says(), "the leader writes that")
}

func TestGateStaysClosedWhileNothingIsKnown(t *testing.T) {
	i := install(t)
	i.create()
	broken := make(chan error, 1)
	broken <- errors.New("no API server")
	gate := NewGate(i.keeper(newOpinion()), func(context.Context) (Verdict, error) {
		select {
		case err := <-broken:
			broken <- err
			return Verdict{}, err
		default:
			return current, nil
		}
	}, 20*time.Millisecond)
	start(t, gate.Start)
	require.Eventually(t, func() bool {
		err := gate.Check(nil)
		return err != nil && err.Error() == "find out whether the operator may be upgraded: no API server"
	}, patience, 5*time.Millisecond)
}

// The leader finishes, and says so, between the look of another replica and its write.
func TestGateDoesNotUndoWhatTheLeaderSaid(t *testing.T) {
	i := install(t)
	i.create()
	leader := i.keeper(newOpinion())
	looks := 0
	gate := NewGate(i.keeper(newOpinion()), func(ctx context.Context) (Verdict, error) {
		if looks++; looks == 1 {
			return running, leader.Hold(ctx, current)
		}
		return current, nil
	}, time.Hour)
	start(t, gate.Start)
	require.Eventually(t, func() bool { return gate.Check(nil) == nil }, patience, 5*time.Millisecond)
	assert.Equal(t, current, i.says())
}

func TestFromEnvironment(t *testing.T) {
	t.Setenv(NameVariable, "")
	_, installed, err := FromEnvironment()
	require.NoError(t, err)
	assert.False(t, installed)

	t.Setenv(NameVariable, "spot-training-operator.v0.2.0")
	t.Setenv(NamespaceVariable, "operators")
	key, installed, err := FromEnvironment()
	require.NoError(t, err)
	assert.True(t, installed)
	assert.Equal(t, types.NamespacedName{Namespace: "operators", Name: "spot-training-operator.v0.2.0"}, key)

	t.Setenv(NamespaceVariable, "")
	_, _, err = FromEnvironment()
	assert.ErrorContains(t, err, "set POD_NAMESPACE to the namespace of the manager")
}
