package spotinstancevm

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/nodenotice"
	"github.com/dcnlab/spot-training-operator/test/fakes/fakegce"
)

func TestAPIInstancesComeWithPodsAndGoWithoutThem(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	m := c.start(newFuse(0))
	vm := c.vm("t4", func(vm *spotv1alpha1.SpotInstanceVM) {
		vm.Spec.IdleTimeout = &metav1.Duration{Duration: 700 * time.Millisecond}
	})
	pods := []client.Object{c.pod("t4", "bert", 0), c.pod("t4", "bert", 1)}

	now := c.await(vm, "two ready instances", c.agree(2))
	assert.Contains(t, now.Finalizers, spotv1alpha1.FinalizerInstances)
	for _, entry := range now.Status.ProvisionedInstances {
		assert.Equal(t, "SpotInstanceJob/bert", entry.AssignedJob)
		assert.Equal(t, zoneA, entry.Zone)
		assert.True(t, entry.JoinedCluster)
		assert.NotNil(t, entry.ReadyTime)
	}
	assert.True(t, meta.IsStatusConditionTrue(now.Status.Conditions, reasons.ConditionReady), "%+v", now.Status.Conditions)
	assert.True(t, meta.IsStatusConditionTrue(now.Status.Conditions, reasons.ConditionCredentialsValid))
	eventually(t, "the tokens to be revoked", func() bool { c.schedule(); return len(c.tokens()) == 0 })

	for _, pod := range pods {
		require.NoError(t, c.Delete(t.Context(), pod))
	}
	c.await(vm, "no instance", c.agree(0))
	assert.Len(t, c.gce.History(), 2)
	eventually(t, "the nodes to be gone", func() bool { return len(c.nodes("t4")) == 0 })

	require.NoError(t, c.Delete(t.Context(), vm))
	eventually(t, "the end of the SpotInstanceVM", func() bool { return c.now(vm) == nil })
	assert.Equal(t, []string{"namespaces", "nodes", "pods", "spotinstancejobs", "spotinstancevms", "trainingjobs"}, m.cached(), "Secrets, above all, are not cached")
}

func TestAPIAReplacementIsAskedForWithinASecondOfTheNotice(t *testing.T) {
	c := newCluster(t)
	c.start(newFuse(0))
	vm := c.vm("t4", func(vm *spotv1alpha1.SpotInstanceVM) { vm.Spec.MaxInstances = 1 })
	c.pod("t4", "bert", 0)
	c.await(vm, "a ready instance with its pod", func(vm *spotv1alpha1.SpotInstanceVM) bool {
		return c.agree(1)(vm) && c.pods()[0].Spec.NodeName != ""
	})
	lost := c.gce.Instances()[0].Name

	c.gce.ForgetCalls()
	noticed := time.Now()
	require.NoError(t, nodenotice.Mark(t.Context(), c.Client, lost, nodenotice.Notice{Time: noticed, Source: nodenotice.MetadataServer}))
	var asked time.Time
	eventually(t, "the request for the replacement", func() bool {
		for _, request := range c.gce.Requests() {
			if request.Method == "compute.instances.insert" {
				asked = request.Time
			}
		}
		return !asked.IsZero()
	})
	t.Logf("asked for %s after the notice", asked.Sub(noticed).Round(time.Millisecond))
	assert.Less(t, asked.Sub(noticed), 5*time.Second, "at once, not in a next round")

	require.NoError(t, c.gce.Preempt(lost))
	now := c.await(vm, "the replacement", func(vm *spotv1alpha1.SpotInstanceVM) bool {
		return c.agree(1)(vm) && vm.Status.ProvisionedInstances[0].Name != lost
	})
	assert.Len(t, c.gce.History(), 2)
	require.Len(t, now.Status.Zones, 1)
	assert.EqualValues(t, 1, now.Status.Zones[0].Preemptions, "the history of the zone counts it")
}

func TestAPIInstancesAreAdoptedAfterALostStatus(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	m := c.start(newFuse(0))
	vm := c.vm("t4")
	c.pod("t4", "bert", 0)
	c.pod("t4", "bert", 1)
	before := c.await(vm, "two ready instances", func(vm *spotv1alpha1.SpotInstanceVM) bool {
		return c.agree(2)(vm) && vm.Status.ProvisionedInstances[0].InstanceID != "" && vm.Status.ProvisionedInstances[1].InstanceID != ""
	})
	m.stop()

	now := c.now(vm)
	lost := now.DeepCopy()
	lost.Status = spotv1alpha1.SpotInstanceVMStatus{}
	require.NoError(t, c.Status().Update(t.Context(), lost))
	c.start(newFuse(0))
	after := c.await(vm, "both to be in the status again, with their numbers", func(vm *spotv1alpha1.SpotInstanceVM) bool {
		return c.agree(2)(vm) && vm.Status.ProvisionedInstances[0].InstanceID != "" && vm.Status.ProvisionedInstances[1].InstanceID != ""
	})
	for n := range after.Status.ProvisionedInstances {
		assert.Equal(t, before.Status.ProvisionedInstances[n].Name, after.Status.ProvisionedInstances[n].Name)
		assert.Equal(t, before.Status.ProvisionedInstances[n].InstanceID, after.Status.ProvisionedInstances[n].InstanceID)
	}
	assert.Len(t, c.gce.History(), 2, "no third was created meanwhile")
}

func TestAPIOrphansAreDeleted(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	m := c.start(newFuse(0))
	vm := c.vm("t4")
	c.pod("t4", "bert", 0)
	c.await(vm, "a ready instance", c.agree(1))
	m.stop()
	// The finalizer is removed by force: nothing in the cluster knows of the instance any more.
	now := c.now(vm)
	now.Finalizers = nil
	require.NoError(t, c.Update(t.Context(), now))
	require.NoError(t, c.Delete(t.Context(), now))
	for _, pod := range c.pods() {
		require.NoError(t, c.Delete(t.Context(), &pod, client.GracePeriodSeconds(0)))
	}

	other := c.vm("other") // with the same credentials
	c.start(newFuse(0))
	eventually(t, "the orphan to be gone", func() bool { return len(c.gce.Instances()) == 0 })
	assert.Empty(t, c.now(other).Status.ProvisionedInstances)

	// One of the same name is another one: it does not adopt what is not its own.
	again := c.vm("t4")
	c.pod("t4", "bert", 0)
	c.await(again, "an instance of its own", c.agree(1))
	assert.Len(t, c.gce.History(), 2)
}

func TestAPIAStockoutEverywhereIsAConditionAndThenAFallback(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(newFuse(0))
	for _, zone := range []string{zoneA, zoneB} {
		c.gce.SetStock(fakegce.Stock{Zone: zone, Model: "SPOT"})
	}
	vm := c.vm("t4")
	c.pod("t4", "bert", 0)
	now := c.await(vm, "the condition", func(vm *spotv1alpha1.SpotInstanceVM) bool {
		return meta.IsStatusConditionFalse(vm.Status.Conditions, reasons.ConditionCapacityAvailable) && vm.Status.Instances == 0
	})
	condition := meta.FindStatusCondition(now.Status.Conditions, reasons.ConditionCapacityAvailable)
	assert.Equal(t, reasons.ZoneExhausted, condition.Reason)
	assert.Contains(t, condition.Message, "spec.allowStandardFallback")

	c.change(vm, func(vm *spotv1alpha1.SpotInstanceVM) { vm.Spec.AllowStandardFallback = ptr.To(true) })
	now = c.await(vm, "an instance at full price", c.agree(1))
	assert.Equal(t, spotv1alpha1.ProvisioningStandard, now.Status.ProvisionedInstances[0].ProvisioningModel)
	assert.False(t, c.gce.Instances()[0].Spot)
}

func TestAPIAStockoutOfAMachineTypeIsAnsweredByAnother(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(newFuse(0))
	for _, zone := range []string{zoneA, zoneB} {
		c.gce.SetStock(fakegce.Stock{Zone: zone, MachineType: "n1-standard-4"})
	}
	vm := c.vm("t4", func(vm *spotv1alpha1.SpotInstanceVM) {
		vm.Spec.GCP.MachineTypes = []string{"n2-standard-4"}
		vm.Spec.Prices = []spotv1alpha1.Price{{MachineType: "n2-standard-4", PerHour: "0.09"}, {PerHour: "0.08"}}
	})
	c.pod("t4", "bert", 0)
	now := c.await(vm, "an instance", c.agree(1))
	assert.Equal(t, "n2-standard-4", now.Status.ProvisionedInstances[0].MachineType)
	assert.Equal(t, "n2-standard-4", c.gce.Instances()[0].MachineType)
	eventually(t, "the price of its type on the node", func() bool {
		nodes := c.nodes("t4")
		return len(nodes) == 1 && nodes[0].Annotations[mlv1.AnnotationPricePerHour] == "0.09"
	})
	for _, zone := range now.Status.Zones {
		assert.Equal(t, "n1-standard-4", zone.MachineType, "there were none of that")
	}
}

func TestAPIWithoutCredentialsNothingIsAskedFor(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	m := c.start(newFuse(0))
	vm := c.vm("t4", func(vm *spotv1alpha1.SpotInstanceVM) { vm.Spec.GCP.CredentialsSecretRef.Name = "missing" })
	other := c.vm("v100", func(vm *spotv1alpha1.SpotInstanceVM) { vm.Spec.GCP.CredentialsSecretRef.Namespace = "kube-system" })
	c.pod("t4", "bert", 0)
	for _, one := range []*spotv1alpha1.SpotInstanceVM{vm, other} {
		now := c.await(one, "the condition", func(vm *spotv1alpha1.SpotInstanceVM) bool {
			return meta.IsStatusConditionFalse(vm.Status.Conditions, reasons.ConditionCredentialsValid)
		})
		assert.Equal(t, reasons.SecretNotFound, meta.FindStatusCondition(now.Status.Conditions, "Ready").Reason)
	}
	assert.NotContains(t, m.log(), "Create")

	require.NoError(t, c.Delete(t.Context(), other))
	eventually(t, "the end of one that has no instances", func() bool { return c.now(other) == nil })
}

func TestAPICredentialsOfAJobServeUntilTheInstancesAreGone(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	m := c.start(newFuse(0))
	job := c.job("bert", "t4", "gcp")
	vm := c.vm("t4", func(vm *spotv1alpha1.SpotInstanceVM) { vm.Spec.GCP.CredentialsSecretRef = nil })
	c.pod("t4", "bert", 0)
	now := c.await(vm, "a ready instance", c.agree(1))
	assert.Equal(t, "gcp", now.Annotations[spotv1alpha1.AnnotationCredentialsSecret])
	require.NoError(t, c.Delete(t.Context(), job))
	m.stop()

	c.start(newFuse(0))
	require.NoError(t, c.Delete(t.Context(), vm))
	eventually(t, "the end of the SpotInstanceVM", func() bool { return c.now(vm) == nil })
	assert.Empty(t, c.gce.Instances())
}

func TestAPIAnInstanceThatDoesNotJoinIsGivenUp(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.mute = true
	c.start(newFuse(0))
	vm := c.vm("t4", func(vm *spotv1alpha1.SpotInstanceVM) { vm.Spec.JoinTimeout = metav1.Duration{Duration: time.Minute} })
	c.pod("t4", "bert", 0)
	c.await(vm, "an instance that runs", func(vm *spotv1alpha1.SpotInstanceVM) bool {
		return len(vm.Status.ProvisionedInstances) == 1 && vm.Status.ProvisionedInstances[0].State == spotv1alpha1.InstanceRunning
	})
	// As if it had been created a while ago.
	now := c.now(vm)
	now.Status.ProvisionedInstances[0].CreationTime = &metav1.Time{Time: time.Now().Add(-2 * time.Minute)}
	require.NoError(t, c.Status().Update(t.Context(), now))
	now = c.await(vm, "the condition", func(vm *spotv1alpha1.SpotInstanceVM) bool {
		ready := meta.FindStatusCondition(vm.Status.Conditions, reasons.ConditionReady)
		return ready.Reason == reasons.JoinFailed && len(vm.Status.ProvisionedInstances) == 0
	})
	assert.Empty(t, c.gce.Instances(), "it is not paid for any longer: %+v", now.Status)
	eventually(t, "its token to be revoked", func() bool { return len(c.tokens()) == 0 })
}

func TestAPILostAnswersAndRequestsThatComeTwiceMakeOneInstance(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start(newFuse(0))
	c.gce.Inject(fakegce.Fault{Method: "compute.instances.insert", Times: 2, LoseAnswer: true})
	c.gce.Inject(fakegce.Fault{Method: "compute.instances.insert", After: 2, Times: 1, Twice: true})
	c.gce.Inject(fakegce.Fault{Method: "compute.zoneOperations.get", Times: 1, LoseAnswer: true})
	vm := c.vm("t4")
	c.pod("t4", "bert", 0)
	c.await(vm, "a ready instance", c.agree(1))

	c.gce.Inject(fakegce.Fault{Method: "compute.instances.delete", Times: 2, LoseAnswer: true})
	require.NoError(t, c.Delete(t.Context(), vm))
	eventually(t, "the end of the SpotInstanceVM", func() bool { return c.now(vm) == nil })
	assert.Len(t, c.gce.History(), 1)
	assert.Empty(t, c.gce.Instances())
}

func TestAPIMethodSSHMakesAKeyAndSaysWhatStopsTheLogin(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.mute = true
	c.start(newFuse(0))
	vm := c.vm("t4", func(vm *spotv1alpha1.SpotInstanceVM) { vm.Spec.KubeadmJoinConfig.Method = spotv1alpha1.JoinBySSH })
	pod := c.pod("t4", "bert", 0)
	c.await(vm, "the reason why the login fails", func(vm *spotv1alpha1.SpotInstanceVM) bool {
		entries := vm.Status.ProvisionedInstances
		return len(entries) == 1 && strings.Contains(entries[0].Message, "has not published its host keys yet")
	})
	keys := func() int {
		var secrets corev1.SecretList
		require.NoError(t, c.List(t.Context(), &secrets, client.InNamespace(c.namespace), client.HasLabels{spotv1alpha1.LabelSpotInstanceVM}))
		return len(secrets.Items)
	}
	assert.Equal(t, 1, keys())
	assert.Contains(t, c.gce.Instances()[0].Metadata["ssh-keys"], "spot:ssh-ed25519 ")

	// The next instances join in another way; this one's key is as good as before.
	c.change(vm, func(vm *spotv1alpha1.SpotInstanceVM) {
		vm.Spec.KubeadmJoinConfig.Method = spotv1alpha1.JoinByStartupScript
	})
	require.NoError(t, c.Delete(t.Context(), pod))
	require.NoError(t, c.Delete(t.Context(), vm))
	eventually(t, "the end of the SpotInstanceVM", func() bool { return c.now(vm) == nil })
	assert.Zero(t, keys(), "the key goes with the instance")
	assert.Empty(t, c.tokens())
}
