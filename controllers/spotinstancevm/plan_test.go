package spotinstancevm

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/cloud/inventory"
)

// outline is what matters of a plan.
type outline struct {
	Instances []string // name, zone, model and state
	Acts      []string
	Release   bool
}

func outlineOf(d desired) outline {
	o := outline{Release: d.release}
	for _, entry := range d.status.ProvisionedInstances {
		o.Instances = append(o.Instances, fmt.Sprintf("%s %s %s %s", entry.Name, entry.Zone, entry.ProvisioningModel, entry.State))
	}
	for _, a := range d.actions {
		o.Acts = append(o.Acts, fmt.Sprintf("%s %s", a.kind, a.name))
	}
	slices.Sort(o.Acts)
	return o
}

const (
	spot = spotv1alpha1.ProvisioningSpot
)

func TestPlan(t *testing.T) {
	planned, running, deleting := spotv1alpha1.InstancePlanned, spotv1alpha1.InstanceRunning, spotv1alpha1.InstanceDeleting
	tests := map[string]struct {
		scene *scene
		want  outline
	}{
		"nothing to do": {aScene(), outline{}},
		"an instance for each pod that needs one": {
			aScene(waiting("0", "1")),
			outline{Instances: []string{"t4-new1 a SPOT PLANNED", "t4-new3 a SPOT PLANNED"}, Acts: []string{"create t4-new1", "create t4-new3"}},
		},
		"no more than maxInstances": {
			aScene(waiting("0", "1", "2", "3", "4"), has("t4-x", running, isReady(time.Minute), runs("9"))),
			outline{
				Instances: []string{"t4-new1 a SPOT PLANNED", "t4-new3 a SPOT PLANNED", "t4-x a SPOT RUNNING"},
				Acts:      []string{"create t4-new1", "create t4-new3", "revoke t4-x"},
			},
		},
		"one that is taken back does not count": {
			aScene(
				has("t4-x", running, isNode(noticed), isReady(time.Minute), runs("0")),
				has("t4-y", running, isReady(time.Minute), runs("1"), remembers(memo{revoked: true})),
				has("t4-z", running, isReady(time.Minute), runs("2"), remembers(memo{revoked: true})),
			),
			outline{
				Instances: []string{"t4-new1 a SPOT PLANNED", "t4-x a SPOT RUNNING", "t4-y a SPOT RUNNING", "t4-z a SPOT RUNNING"},
				Acts:      []string{"create t4-new1"},
			},
		},
		"one that is asked for serves": {
			aScene(waiting("0"), has("t4-x", planned, remembers(memo{create: pending("op")}))),
			outline{Instances: []string{"t4-x a SPOT PLANNED"}, Acts: []string{"await t4-x"}},
		},
		"an entry that another process left is asked for again": {
			aScene(waiting("0"), has("t4-x", planned)),
			outline{Instances: []string{"t4-x a SPOT PLANNED"}, Acts: []string{"create t4-x"}},
		},
		"also when a pod is on another one that is about to be ready": {
			aScene(waiting("0"), has("t4-a", running, isNode(), runs("1"), remembers(memo{revoked: true})), has("t4-x", planned)),
			outline{Instances: []string{"t4-a a SPOT RUNNING", "t4-x a SPOT PLANNED"}, Acts: []string{"create t4-x"}},
		},
		"but not when no pod needs it any more": {
			aScene(has("t4-x", planned)), outline{Instances: []string{"t4-x a SPOT DELETING"}, Acts: []string{"look t4-x"}},
		},
		"nor when the one that needs it is on its node, which an earlier process did not see": {
			aScene(has("t4-x", planned, isNode(), runs("0"))), outline{Instances: []string{"t4-x a SPOT PLANNED"}, Acts: []string{"create t4-x"}},
		},
		"what the provider has under its name is ours": {
			aScene(has("t4-x", deleting, remembers(memo{lookedAt: noon, looked: &cloud.Instance{Name: "t4-x", State: "RUNNING"}}))),
			outline{Instances: []string{"t4-x a SPOT DELETING"}, Acts: []string{"delete t4-x"}},
		},
		"or it has nothing of ours, and a list after that must say the same": {
			aScene(has("t4-x", deleting, remembers(memo{lookedAt: noon}))),
			outline{Instances: []string{"t4-x a SPOT DELETING"}, Acts: []string{"refresh a"}},
		},
		"then what it would have joined with is revoked": {
			aScene(has("t4-x", deleting, remembers(memo{lookedAt: noon.Add(-time.Hour), nodeless: true}))),
			outline{Instances: []string{"t4-x a SPOT DELETING"}, Acts: []string{"revoke t4-x"}},
		},
		"and it goes": {
			aScene(has("t4-x", deleting, remembers(memo{lookedAt: noon.Add(-time.Hour), nodeless: true, revoked: true}))), outline{},
		},
		"the provider shows it before it has granted it": {
			aScene(waiting("0"), has("t4-x", planned, exists("PROVISIONING"), func(_ *scene, i *instance) { i.CreationTime = nil },
				remembers(memo{create: pending("op")}))),
			outline{Instances: []string{"t4-x a SPOT PLANNED"}, Acts: []string{"await t4-x"}},
		},
		"it is granted": {
			aScene(waiting("0"), has("t4-x", planned, remembers(memo{create: done()}))),
			outline{Instances: []string{"t4-x a SPOT PROVISIONING"}, Acts: []string{"refresh a"}},
		},
		"a stockout goes on to the next zone under the same name": {
			aScene(waiting("0"), exhaust("a", spot, cloud.Stockout), has("t4-x", planned, remembers(memo{create: failed(cloud.Stockout)}))),
			outline{Instances: []string{"t4-x b SPOT PLANNED"}, Acts: []string{"create t4-x"}},
		},
		"no zone has one": {
			aScene(waiting("0"), exhaust("a", spot, cloud.Stockout), exhaust("b", spot, cloud.Quota),
				has("t4-x", planned, remembers(memo{create: failed(cloud.Stockout)}))),
			outline{Instances: []string{"t4-x a SPOT DELETING"}, Acts: []string{"findNode t4-x"}},
		},
		"then at full price, if the user allows it": {
			aScene(waiting("0"), exhaust("a", spot, cloud.Stockout), exhaust("b", spot, cloud.Quota),
				func(s *scene) { s.vm.Spec.AllowStandardFallback = ptr.To(true) }),
			outline{Instances: []string{"t4-new1 a STANDARD PLANNED"}, Acts: []string{"create t4-new1"}},
		},
		"an invalid request is not repeated": {
			aScene(waiting("0"), has("t4-x", planned, remembers(memo{create: failed(cloud.Invalid)}))),
			outline{Instances: []string{"t4-x a SPOT DELETING"}, Acts: []string{"findNode t4-x"}},
		},
		"a lost answer is asked for again": {
			aScene(waiting("0"), has("t4-x", planned, remembers(memo{create: request{sentAt: noon, tries: 1, err: &cloud.Error{Class: cloud.Transient}}}))),
			outline{Instances: []string{"t4-x a SPOT PLANNED"}, Acts: []string{"create t4-x"}},
		},
		"a name that is taken is looked at": {
			aScene(waiting("0"), has("t4-x", planned, remembers(memo{create: failed(cloud.AlreadyExists)}))),
			outline{Instances: []string{"t4-x a SPOT PLANNED"}, Acts: []string{"look t4-x"}},
		},
		"and left to whose it is": {
			aScene(waiting("0"), has("t4-x", planned, remembers(memo{create: failed(cloud.AlreadyExists), lookedAt: noon.Add(time.Second)}))),
			outline{Instances: []string{"t4-x a SPOT DELETING"}, Acts: []string{"findNode t4-x"}},
		},
		"a node gets its price and is ready": {
			aScene(waiting("0"), func(s *scene) { s.vm.Spec.Prices = []spotv1alpha1.Price{{PerHour: "0.4"}} },
				has("t4-x", running, isNode(), remembers(memo{revoked: true}))),
			outline{Instances: []string{"t4-x a SPOT RUNNING"}, Acts: []string{"label t4-x"}},
		},
		"a node that has joined is opened to pods": {
			aScene(waiting("0"), has("t4-x", running, isNode(unverified), isReady(time.Minute), remembers(memo{revoked: true}))),
			outline{Instances: []string{"t4-x a SPOT RUNNING"}, Acts: []string{"label t4-x"}},
		},
		"not one that is older than the instance": {
			aScene(waiting("0"), has("t4-x", running, isReady(time.Minute), remembers(memo{revoked: true}), isNode(unverified, func(n *corev1.Node) {
				n.CreationTimestamp.Time = noon.Add(-time.Hour)
			}))),
			outline{Instances: []string{"t4-x a SPOT RUNNING"}},
		},
		"nor one that its cloud knows as another instance": {
			aScene(waiting("0"), has("t4-x", running, isReady(time.Minute), remembers(memo{revoked: true}), isNode(unverified, func(n *corev1.Node) {
				n.Spec.ProviderID = "gce://project/b/t4-x"
			}))),
			outline{Instances: []string{"t4-x a SPOT RUNNING"}},
		},
		"where the namespace may have no instances none is asked for": {
			aScene(waiting("0", "1"), notAllowed, has("t4-x", running, isReady(time.Minute), remembers(memo{revoked: true}))),
			outline{Instances: []string{"t4-x a SPOT RUNNING"}},
		},
		"nor one that was about to be": {
			aScene(waiting("0"), notAllowed, has("t4-x", planned)),
			outline{Instances: []string{"t4-x a SPOT DELETING"}, Acts: []string{"look t4-x"}},
		},
		"nor one whose answer was lost": {
			aScene(waiting("0"), notAllowed, has("t4-x", planned, remembers(memo{create: request{sentAt: noon, tries: 1, err: &cloud.Error{Class: cloud.Transient}}}))),
			outline{Instances: []string{"t4-x a SPOT DELETING"}, Acts: []string{"look t4-x"}},
		},
		"nor in the next zone": {
			aScene(waiting("0"), notAllowed, exhaust("a", spot, cloud.Stockout), has("t4-x", planned, remembers(memo{create: failed(cloud.Stockout)}))),
			outline{Instances: []string{"t4-x a SPOT DELETING"}, Acts: []string{"findNode t4-x"}},
		},
		"nor while the Secret goes, which would wait for it": {
			aScene(waiting("0"), has("t4-x", planned), func(s *scene) {
				s.access = problem{reason: reasons.SecretNotFound, message: "no", credentials: true, ending: true}
			}),
			outline{Instances: []string{"t4-x a SPOT DELETING"}, Acts: []string{"look t4-x"}},
		},
		"the Node of another machine that has the instance's name is not its node": {
			aScene(waiting("0"), has("t4-x", running, isNode(ofAnotherMachine))), outline{Instances: []string{"t4-x a SPOT RUNNING"}},
		},
		"nor one in another project": {
			aScene(waiting("0"), has("t4-x", running, isNode(func(n *corev1.Node) { n.Spec.ProviderID = "gce://another/a/t4-x" }))),
			outline{Instances: []string{"t4-x a SPOT RUNNING"}},
		},
		"its own is": {
			aScene(waiting("0"), has("t4-x", running, isNode(func(n *corev1.Node) { n.Spec.ProviderID = "gce://project/a/t4-x" }))),
			outline{Instances: []string{"t4-x a SPOT RUNNING"}, Acts: []string{"revoke t4-x"}},
		},
		"that Node is not marked when the instance stops": {
			aScene(has("t4-x", running, isReady(time.Hour), isNode(ofAnotherMachine), exists("TERMINATED"), remembers(memo{revoked: true}))),
			outline{Instances: []string{"t4-x a SPOT TERMINATED"}, Acts: []string{"why t4-x"}},
		},
		"nor deleted with it": {
			aScene(has("t4-x", deleting, unlisted, isNode(ofAnotherMachine), remembers(memo{remove: done(), nodeless: true, revoked: true}))), outline{},
		},
		"an instance that does not join in time": {
			aScene(waiting("0"), has("t4-x", running, func(_ *scene, i *instance) { i.CreationTime.Time = noon.Add(-time.Hour) })),
			outline{Instances: []string{"t4-x a SPOT DELETING"}, Acts: []string{"delete t4-x"}},
		},
		"an idle node first takes no new pods": {
			aScene(has("t4-x", running, isReady(time.Hour), remembers(memo{revoked: true, idleSince: noon.Add(-11 * time.Minute)}))),
			outline{Instances: []string{"t4-x a SPOT RUNNING"}, Acts: []string{"taint t4-x"}},
		},
		"is looked at once more": {
			aScene(has("t4-x", running, isNode(idle), isReady(time.Hour), remembers(memo{revoked: true, idleSince: noon.Add(-11 * time.Minute)}))),
			outline{Instances: []string{"t4-x a SPOT RUNNING"}},
		},
		"and is deleted": {
			aScene(has("t4-x", running, isNode(idle), isReady(time.Hour), recheckedNode, remembers(memo{revoked: true, idleSince: noon.Add(-11 * time.Minute)}))),
			outline{Instances: []string{"t4-x a SPOT DELETING"}, Acts: []string{"delete t4-x"}},
		},
		"unless a pod came in between": {
			aScene(has("t4-x", running, isNode(idle), isReady(time.Hour), runs("0"), remembers(memo{revoked: true, idleSince: noon.Add(-11 * time.Minute)}))),
			outline{Instances: []string{"t4-x a SPOT RUNNING"}, Acts: []string{"untaint t4-x"}},
		},
		"or is waiting": {
			aScene(waiting("0"), refusedSince(0), has("t4-x", running, isNode(idle), isReady(time.Hour), recheckedNode, remembers(memo{revoked: true}))),
			outline{Instances: []string{"t4-x a SPOT RUNNING"}, Acts: []string{"untaint t4-x"}},
		},
		"a pod that an empty node does not help gets no second": {
			aScene(waiting("0"), has("t4-x", running, isReady(time.Hour), remembers(memo{revoked: true}))),
			outline{Instances: []string{"t4-x a SPOT RUNNING"}},
		},
		"nor does it keep that node": {
			aScene(waiting("0"), refusedSince(time.Hour), has("t4-x", running, isReady(time.Hour),
				remembers(memo{revoked: true, idleSince: noon.Add(-11 * time.Minute)}))),
			outline{Instances: []string{"t4-x a SPOT RUNNING"}, Acts: []string{"taint t4-x"}},
		},
		"which goes": {
			aScene(waiting("0"), refusedSince(time.Hour), has("t4-x", running, isNode(idle), isReady(time.Hour), recheckedNode,
				remembers(memo{revoked: true, idleSince: noon.Add(-11 * time.Minute)}))),
			outline{Instances: []string{"t4-x a SPOT DELETING"}, Acts: []string{"delete t4-x"}},
		},
		"unless the pod came when the node took none": {
			aScene(waiting("0"), refusedSince(0), has("t4-x", running, isNode(idle), isReady(time.Hour), recheckedNode,
				remembers(memo{revoked: true, idleSince: noon.Add(-11 * time.Minute)}))),
			outline{Instances: []string{"t4-x a SPOT RUNNING"}, Acts: []string{"untaint t4-x"}},
		},
		"once the scheduler had the time to find it": {
			aScene(waiting("0"), refusedSince(time.Hour), func(s *scene) { s.vm.Spec.IdleTimeout = &metav1.Duration{} },
				has("t4-x", running, isReady(time.Hour), remembers(memo{revoked: true, idleSince: noon.Add(time.Second - settleIn)}))),
			outline{Instances: []string{"t4-x a SPOT RUNNING"}},
		},
		"nor does one that was created again since": {
			aScene(waiting("0"), refusedSince(2*time.Second), has("t4-x", running, isNode(idle), isReady(time.Hour), recheckedNode,
				remembers(memo{revoked: true, idleSince: noon.Add(-11 * time.Minute)}))),
			outline{Instances: []string{"t4-x a SPOT DELETING"}, Acts: []string{"delete t4-x"}},
		},
		"a node with a job that asks for no instances": {
			aScene(has("t4-x", running, isReady(time.Hour), uses("4", true), remembers(memo{revoked: true, idleSince: noon.Add(-11 * time.Minute)}))),
			outline{Instances: []string{"t4-x a SPOT RUNNING"}},
		},
		"it is not known yet what else is on it": {
			aScene(func(s *scene) { s.unsure = true },
				has("t4-x", running, isNode(idle), isReady(time.Hour), recheckedNode, remembers(memo{revoked: true, idleSince: noon.Add(-11 * time.Minute)}))),
			outline{Instances: []string{"t4-x a SPOT RUNNING"}},
		},
		"a node that has just come is given time": {
			aScene(waiting("0"), has("t4-x", running, isReady(time.Second), remembers(memo{revoked: true}))),
			outline{Instances: []string{"t4-x a SPOT RUNNING"}},
		},
		"a list that does not show an instance is not believed": {
			aScene(has("t4-x", running, unlisted, isReady(time.Hour), runs("0"), remembers(memo{revoked: true}))),
			outline{Instances: []string{"t4-x a SPOT RUNNING"}, Acts: []string{"look t4-x"}},
		},
		"the provider does not know it any more": {
			aScene(has("t4-x", running, unlisted, isReady(time.Hour), runs("0"), remembers(memo{revoked: true, lookedAt: noon}))),
			outline{Instances: []string{"t4-x a SPOT DELETING"}, Acts: []string{"delete t4-x", "mark t4-x"}},
		},
		"an instance that stops leaves a notice, and is replaced when its pods see it": {
			aScene(has("t4-x", running, isReady(time.Hour), exists("STOPPING"), runs("0"), remembers(memo{revoked: true}))),
			outline{Instances: []string{"t4-x a SPOT STOPPING"}, Acts: []string{"mark t4-x"}},
		},
		"why it stopped is asked": {
			aScene(has("t4-x", running, isNode(noticed), isReady(time.Hour), exists("TERMINATED"), remembers(memo{revoked: true}))),
			outline{Instances: []string{"t4-x a SPOT TERMINATED"}, Acts: []string{"why t4-x"}},
		},
		"and it is deleted": {
			aScene(has("t4-x", running, isNode(noticed), isReady(time.Hour), exists("TERMINATED"), remembers(memo{revoked: true, preempted: done()}))),
			outline{Instances: []string{"t4-x a SPOT DELETING"}, Acts: []string{"delete t4-x"}},
		},
		"a deletion is awaited": {
			aScene(has("t4-x", deleting, exists("STOPPING"), remembers(memo{remove: pending("op")}))),
			outline{Instances: []string{"t4-x a SPOT DELETING"}, Acts: []string{"await t4-x"}},
		},
		"or asked for again when its operation is not known": {
			aScene(has("t4-x", deleting, exists("RUNNING"), remembers(memo{remove: request{sentAt: noon}}))),
			outline{Instances: []string{"t4-x a SPOT DELETING"}, Acts: []string{"delete t4-x"}},
		},
		"then the Node goes": {
			aScene(has("t4-x", deleting, exists("STOPPING"), isNode(), remembers(memo{remove: done()}))),
			outline{Instances: []string{"t4-x a SPOT DELETING"}, Acts: []string{"dropNode t4-x"}},
		},
		"and one that the cache may not show": {
			aScene(has("t4-x", deleting, unlisted, remembers(memo{remove: done()}))),
			outline{Instances: []string{"t4-x a SPOT DELETING"}, Acts: []string{"findNode t4-x"}},
		},
		"then what it joined with": {
			aScene(has("t4-x", deleting, unlisted, remembers(memo{remove: done(), nodeless: true}))),
			outline{Instances: []string{"t4-x a SPOT DELETING"}, Acts: []string{"revoke t4-x"}},
		},
		"then the entry": {
			aScene(has("t4-x", deleting, unlisted, remembers(memo{remove: done(), nodeless: true, revoked: true}))), outline{},
		},
		"an entry that may never have been is gone when a later list says so": {
			aScene(has("t4-x", deleting, remembers(memo{remove: failed(cloud.NotFound)}))),
			outline{Instances: []string{"t4-x a SPOT DELETING"}, Acts: []string{"refresh a"}},
		},
		"which it does": {
			aScene(func(s *scene) { s.listed["a"] = noon.Add(time.Second) }, has("t4-x", deleting, remembers(memo{remove: failed(cloud.NotFound), nodeless: true, revoked: true}))),
			outline{},
		},
		"a deletion that may not be is tried again": {
			aScene(has("t4-x", deleting, exists("RUNNING"), remembers(memo{remove: failed(cloud.Permission)}))),
			outline{Instances: []string{"t4-x a SPOT DELETING"}, Acts: []string{"delete t4-x"}},
		},
		"what exists is deleted, however its creation was answered": {
			aScene(has("t4-x", deleting, exists("RUNNING"), remembers(memo{create: failed(cloud.AlreadyExists)}))),
			outline{Instances: []string{"t4-x a SPOT DELETING"}, Acts: []string{"delete t4-x"}},
		},
		"what is being created is deleted when it is there": {
			aScene(has("t4-x", deleting, remembers(memo{create: pending("op")}))),
			outline{Instances: []string{"t4-x a SPOT DELETING"}, Acts: []string{"await t4-x"}},
		},
		"a SpotInstanceVM goes after its instances": {
			aScene(beingDeleted, waiting("7"), has("t4-x", running, isReady(time.Hour), runs("0"), remembers(memo{revoked: true})), has("t4-y", planned)),
			outline{Instances: []string{"t4-x a SPOT DELETING", "t4-y a SPOT DELETING"}, Acts: []string{"delete t4-x", "look t4-y"}},
		},
		"without any it goes": {aScene(beingDeleted), outline{Release: true}},
		"not before its zones were listed since": {
			aScene(beingDeleted, func(s *scene) { s.listed["b"] = noon.Add(-time.Hour) }), outline{Acts: []string{"refresh b"}},
		},
		"nor before one since the last request": {
			aScene(beingDeleted, func(s *scene) { s.memo.lastSent = noon; s.listed["b"] = noon.Add(time.Second) }), outline{Acts: []string{"refresh a"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before := test.scene.vm.DeepCopy()

			got := plan(test.scene.observed)

			assert.Equal(t, test.want, outlineOf(got))
			assert.Equal(t, before, test.scene.vm, "what was observed is not changed")
		})
	}
}

func TestPlanAdoptsWhatIsOurs(t *testing.T) {
	found := inventory.Found{
		Instance: cloud.Instance{Name: "t4-lost", Zone: "b", State: "RUNNING", Spot: true, Created: noon.Add(-time.Hour)},
		Owner:    inventory.Owner{UID: types.UID("uid")}, AsOf: noon.Add(-time.Second),
	}
	s := aScene(func(s *scene) { s.unrecorded = []inventory.Found{found}; s.nodes["t4-lost"] = aNode("t4-lost") })
	d := plan(s.observed)
	require.Len(t, d.status.ProvisionedInstances, 1)
	assert.Equal(t, "t4-lost b SPOT RUNNING", outlineOf(d).Instances[0])
	assert.True(t, d.status.ProvisionedInstances[0].JoinedCluster)
	assert.True(t, d.finalizer)

	s.memo.ended["t4-lost"] = noon
	assert.Empty(t, plan(s.observed).status.ProvisionedInstances, "the list is older than its end")

	s = aScene(beingDeleted, func(s *scene) { s.unrecorded = []inventory.Found{found} })
	d = plan(s.observed)
	assert.Equal(t, outline{Instances: []string{"t4-lost b SPOT DELETING"}, Acts: []string{"delete t4-lost"}}, outlineOf(d))
}

func TestPlanWaitsAfterAProblemUntilTheSpecChanges(t *testing.T) {
	s := aScene(waiting("0"), has("t4-x", spotv1alpha1.InstancePlanned, remembers(memo{create: failed(cloud.Invalid)})))
	d := plan(s.observed)
	assert.Equal(t, firstHold, d.again)
	ready := meta.FindStatusCondition(d.status.Conditions, reasons.ConditionReady)
	assert.Equal(t, reasons.InvalidSpec, ready.Reason)

	next := aScene(waiting("0"), func(s *scene) { s.memo.hold = d.hold })
	assert.Empty(t, plan(next.observed).actions, "nothing is asked for meanwhile")
	assert.Equal(t, reasons.InvalidSpec, meta.FindStatusCondition(plan(next.observed).status.Conditions, "Ready").Reason)
	next.now = noon.Add(firstHold)
	assert.NotEmpty(t, plan(next.observed).actions, "then it is tried again")
	next.now = noon
	next.vm.Generation++
	assert.NotEmpty(t, plan(next.observed).actions, "a new spec is tried at once")
	assert.Equal(t, reasons.Provisioning, meta.FindStatusCondition(plan(next.observed).status.Conditions, "Ready").Reason)
}

func TestConditions(t *testing.T) {
	planned, running := spotv1alpha1.InstancePlanned, spotv1alpha1.InstanceRunning
	tests := map[string]struct {
		scene *scene
		want  map[string]string
	}{
		"at rest": {aScene(), map[string]string{"Allowed": "True NamespaceAllowed", "Ready": "True Ready", "CapacityAvailable": "True Ready", "CredentialsValid": "True Ready"}},
		"before the first list": {
			aScene(func(s *scene) { clear(s.listed) }),
			map[string]string{"Allowed": "True NamespaceAllowed", "Ready": "True Ready", "CapacityAvailable": "True Ready", "CredentialsValid": "Unknown Provisioning"},
		},
		"an instance is asked for": {
			aScene(waiting("0")),
			map[string]string{"Allowed": "True NamespaceAllowed", "Ready": "True Provisioning", "CapacityAvailable": "Unknown Provisioning", "CredentialsValid": "True Ready"},
		},
		"it joins": {
			aScene(waiting("0"), has("t4-x", running)),
			map[string]string{"Allowed": "True NamespaceAllowed", "Ready": "True Provisioning", "CapacityAvailable": "True Provisioning", "CredentialsValid": "True Ready"},
		},
		"no zone has one": {
			aScene(waiting("0"), exhaust("a", spot, cloud.Stockout), exhaust("b", spot, cloud.Stockout)),
			map[string]string{"Allowed": "True NamespaceAllowed", "Ready": "False ZoneExhausted", "CapacityAvailable": "False ZoneExhausted", "CredentialsValid": "True Ready"},
		},
		"a quota is what the user can raise": {
			aScene(waiting("0"), exhaust("a", spot, cloud.Stockout), exhaust("b", spot, cloud.Quota)),
			map[string]string{"Allowed": "True NamespaceAllowed", "Ready": "False ProviderQuotaExceeded", "CapacityAvailable": "False ProviderQuotaExceeded", "CredentialsValid": "True Ready"},
		},
		"more pods than instances": {
			aScene(waiting("0", "1"), func(s *scene) { s.vm.Spec.MaxInstances = 1 }, has("t4-x", running)),
			map[string]string{"Allowed": "True NamespaceAllowed", "Ready": "True Ready", "CapacityAvailable": "False MaxInstancesReached", "CredentialsValid": "True Ready"},
		},
		"a pod that is too large": {
			aScene(func(s *scene) { s.pods = []*corev1.Pod{aPod("huge", refused, needs("64"))} }),
			map[string]string{"Allowed": "True NamespaceAllowed", "Ready": "True Ready", "CapacityAvailable": "False PodDoesNotFit", "CredentialsValid": "True Ready"},
		},
		"the credentials may not": {
			aScene(waiting("0"), has("t4-x", planned, remembers(memo{create: failed(cloud.Permission)}))),
			map[string]string{"Allowed": "True NamespaceAllowed", "Ready": "False PermissionDenied", "CapacityAvailable": "False PermissionDenied", "CredentialsValid": "False PermissionDenied"},
		},
		"the Secret is missing": {
			aScene(func(s *scene) {
				s.access = problem{reason: reasons.SecretNotFound, message: "no", credentials: true}
			}),
			map[string]string{"Allowed": "True NamespaceAllowed", "Ready": "False SecretNotFound", "CapacityAvailable": "True Ready", "CredentialsValid": "False SecretNotFound"},
		},
		"the namespace may not": {
			aScene(waiting("0"), notAllowed, func(s *scene) { clear(s.listed); s.types[0].shape = nil }),
			map[string]string{
				"Allowed": "False NamespaceNotAllowed", "Ready": "False NamespaceNotAllowed", "CapacityAvailable": "False NamespaceNotAllowed",
				"CredentialsValid": "Unknown Provisioning",
			},
		},
		"it is being deleted": {
			aScene(beingDeleted, has("t4-x", running)),
			map[string]string{"Allowed": "True NamespaceAllowed", "Ready": "False Deleting", "CapacityAvailable": "True Ready", "CredentialsValid": "True Ready"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			for _, c := range plan(test.scene.observed).status.Conditions {
				got[c.Type] = string(c.Status) + " " + c.Reason
				assert.NotEmpty(t, c.Message)
			}
			assert.Equal(t, test.want, got)
		})
	}
}

func TestPlanningAgainChangesNothing(t *testing.T) {
	scenes := map[string]*scene{
		"at rest": aScene(), "ready": aScene(has("t4-x", spotv1alpha1.InstanceRunning, isReady(time.Hour), runs("0"), remembers(memo{revoked: true}))),
		"atMaxInstances": aScene(waiting("0", "1", "2"), func(s *scene) { s.vm.Spec.MaxInstances = 1 }, has("t4-x", spotv1alpha1.InstanceRunning)),
	}
	for name, s := range scenes {
		t.Run(name, func(t *testing.T) {
			first := plan(s.observed)
			s.vm.Status = first.status
			for n := range s.instances {
				s.instances[n].ProvisionedInstance = first.status.ProvisionedInstances[n]
			}
			s.now = s.now.Add(time.Second)
			assert.Equal(t, first.status, plan(s.observed).status)
		})
	}
}
