package metrics

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

func TestSpotInstancesAreCountedByStateZoneAndModel(t *testing.T) {
	vm := spotv1alpha1.SpotInstanceVM{}
	vm.Status.ProvisionedInstances = []spotv1alpha1.ProvisionedInstance{
		{Name: "a", Zone: "us-central1-a", State: "RUNNING", ProvisioningModel: "SPOT"},
		{Name: "b", Zone: "us-central1-a", State: "RUNNING", ProvisioningModel: "SPOT"},
		{Name: "c", Zone: "us-central1-b", State: "PLANNED", ProvisioningModel: "STANDARD"},
	}
	const want = `
# HELP spotinstancevm_instances Instances that exist or were asked for, by their state.
# TYPE spotinstancevm_instances gauge
spotinstancevm_instances{provisioning_model="SPOT",state="RUNNING",zone="us-central1-a"} 2
spotinstancevm_instances{provisioning_model="STANDARD",state="PLANNED",zone="us-central1-b"} 1
`
	collector := NewSpotInstanceStatus(vmLister{vms: []spotv1alpha1.SpotInstanceVM{vm}}, 1)
	require.NoError(t, testutil.CollectAndCompare(collector, strings.NewReader(want)))
	problems, err := testutil.CollectAndLint(collector)
	require.NoError(t, err)
	assert.Empty(t, problems)
	require.ErrorContains(t, testutil.CollectAndCompare(NewSpotInstanceStatus(vmLister{err: errors.New("no cache")}, 1), strings.NewReader("")), "no cache")
}

func TestWhatHappensToSpotInstancesIsCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewSpotInstances(registry)
	m.Ready("a", "SPOT", 90*time.Second)
	m.Refused("a", "n1-standard-4", "Stockout")
	m.Preempted("a", "n1-standard-4")
	m.Orphaned("a")
	m.Listed("a", time.Second, nil)
	m.Listed("a", time.Second, errors.New("no answer"))
	const want = `
# HELP spotinstancevm_list_failures_total Lists of the instances of a zone that failed.
# TYPE spotinstancevm_list_failures_total counter
spotinstancevm_list_failures_total{zone="a"} 1
# HELP spotinstancevm_lists_total Lists of the instances of a zone.
# TYPE spotinstancevm_lists_total counter
spotinstancevm_lists_total{zone="a"} 2
# HELP spotinstancevm_orphans_total Instances that were deleted because their SpotInstanceVM no longer exists.
# TYPE spotinstancevm_orphans_total counter
spotinstancevm_orphans_total{zone="a"} 1
# HELP spotinstancevm_preemptions_total Instances that their provider took back, or that another than the operator ended.
# TYPE spotinstancevm_preemptions_total counter
spotinstancevm_preemptions_total{machine_type="n1-standard-4",zone="a"} 1
# HELP spotinstancevm_refusals_total Instances that the provider refused, by the class of its error: Stockout, Quota and others.
# TYPE spotinstancevm_refusals_total counter
spotinstancevm_refusals_total{class="Stockout",machine_type="n1-standard-4",zone="a"} 1
`
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(want), "spotinstancevm_list_failures_total",
		"spotinstancevm_lists_total", "spotinstancevm_orphans_total", "spotinstancevm_preemptions_total", "spotinstancevm_refusals_total"))
	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	assert.Empty(t, problems)
}
