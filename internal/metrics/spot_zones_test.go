package metrics

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

type vmLister struct {
	client.Reader

	vms []spotv1alpha1.SpotInstanceVM
	err error
}

func (l vmLister) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*spotv1alpha1.SpotInstanceVMList).Items = l.vms
	return l.err
}

func TestFiguresOfZones(t *testing.T) {
	vm := spotv1alpha1.SpotInstanceVM{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "t4"}}
	vm.Spec.PriceCurrency = "EUR"
	vm.Status.Zones = []spotv1alpha1.ZoneHistory{
		{Zone: "us-central1-a", MachineType: "n1-standard-8", Preemptions: 3, InstanceHours: "41.5", RatePerHour: "0.04728", PricePerHour: "0.35"},
		{Zone: "us-central1-b", MachineType: "n1-standard-8", LastStockoutTime: ptr.To(metav1.NewTime(builders.Noon)), RatePerHour: "0.00417"},
	}
	want := `
# HELP spot_zone_instance_hours_total Hours that spot instances ran until they were taken back or deleted.
# TYPE spot_zone_instance_hours_total counter
spot_zone_instance_hours_total{machine_type="n1-standard-8",namespace="team",spot_instance_vm="t4",zone="us-central1-a"} 41.5
# HELP spot_zone_preemptions_per_hour Preemptions to be expected for each hour of a spot instance.
# TYPE spot_zone_preemptions_per_hour gauge
spot_zone_preemptions_per_hour{machine_type="n1-standard-8",namespace="team",spot_instance_vm="t4",zone="us-central1-a"} 0.04728
spot_zone_preemptions_per_hour{machine_type="n1-standard-8",namespace="team",spot_instance_vm="t4",zone="us-central1-b"} 0.00417
# HELP spot_zone_preemptions_total Spot instances that the provider took back.
# TYPE spot_zone_preemptions_total counter
spot_zone_preemptions_total{machine_type="n1-standard-8",namespace="team",spot_instance_vm="t4",zone="us-central1-a"} 3
spot_zone_preemptions_total{machine_type="n1-standard-8",namespace="team",spot_instance_vm="t4",zone="us-central1-b"} 0
# HELP spot_zone_price_per_hour Price of a spot instance for an hour, as the spec says it.
# TYPE spot_zone_price_per_hour gauge
spot_zone_price_per_hour{currency="EUR",machine_type="n1-standard-8",namespace="team",spot_instance_vm="t4",zone="us-central1-a"} 0.35
# HELP spot_zone_stockout_timestamp_seconds When the zone last had no spot instance to give.
# TYPE spot_zone_stockout_timestamp_seconds gauge
spot_zone_stockout_timestamp_seconds{machine_type="n1-standard-8",namespace="team",spot_instance_vm="t4",zone="us-central1-b"} 1.8935856e+09
`
	require.NoError(t, testutil.CollectAndCompare(NewSpotInstanceStatus(vmLister{vms: []spotv1alpha1.SpotInstanceVM{vm}}, 1), strings.NewReader(want)))
	_, err := testutil.CollectAndLint(NewSpotInstanceStatus(vmLister{vms: []spotv1alpha1.SpotInstanceVM{vm}}, 1))
	require.NoError(t, err)
	require.ErrorContains(t, testutil.CollectAndCompare(NewSpotInstanceStatus(vmLister{err: errors.New("no cache")}, 1), strings.NewReader("")), "no cache")
}
