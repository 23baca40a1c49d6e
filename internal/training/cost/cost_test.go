package cost

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

var noon = time.Date(2030, time.January, 2, 12, 0, 0, 0, time.UTC)

func at(clock string) time.Time {
	offset, err := time.ParseDuration(clock)
	if err != nil {
		panic(err)
	}
	return noon.Add(offset)
}

func amounts(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func TestPriceOf(t *testing.T) {
	const price, currency = mlv1.AnnotationPricePerHour, mlv1.AnnotationPriceCurrency
	for _, test := range []struct {
		name                string
		annotations, labels map[string]string
		want                string // price and currency; empty for none
	}{
		{"no price", nil, nil, ""},
		{"an annotation", map[string]string{price: "3.06"}, nil, "3.06 USD"},
		{"a label", nil, map[string]string{price: "3.06", currency: "EUR"}, "3.06 EUR"},
		{"both", map[string]string{price: "3.06"}, map[string]string{price: "9", currency: "EUR"}, "3.06 EUR"},
		{"nothing to pay", map[string]string{price: "0"}, nil, "0 USD"},
		{"no number", map[string]string{price: "cheap"}, nil, ""},
		{"two points", map[string]string{price: "3.0.6"}, nil, ""},
		{"below 0", map[string]string{price: "-1"}, nil, ""},
		{"a fraction", map[string]string{price: "1/3"}, nil, ""},
		{"a huge exponent", map[string]string{price: "1e999999999"}, nil, ""},
		{"with its currency in it", map[string]string{price: "3.06 USD"}, nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := PriceOf(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: test.annotations, Labels: test.labels}})
			require.Equal(t, test.want != "", got != nil)
			if got != nil {
				assert.Equal(t, test.want, text(got.PerHour)+" "+got.Currency)
			}
		})
	}
}

func TestRate(t *testing.T) {
	gpuNode := amounts("cpu", "64", "memory", "512Gi", "nvidia.com/gpu", "8")
	cpuNode := amounts("cpu", "16", "memory", "64Gi")
	for _, test := range []struct {
		name                  string
		requests, allocatable corev1.ResourceList
		want                  string // of a node that costs 32
	}{
		{"two of eight GPUs, whatever else", amounts("nvidia.com/gpu", "2", "cpu", "60"), gpuNode, "8"},
		{"all GPUs", amounts("nvidia.com/gpu", "8"), gpuNode, "32"},
		{"no GPU of a node that has some", amounts("cpu", "16", "memory", "64Gi"), gpuNode, "8"},
		{"0 GPUs, said", amounts("cpu", "16", "nvidia.com/gpu", "0"), gpuNode, "8"},
		{"more CPU than memory", amounts("cpu", "8", "memory", "1Gi"), cpuNode, "16"},
		{"more memory than CPU", amounts("cpu", "1", "memory", "48Gi"), cpuNode, "24"},
		{"a part of a core", amounts("cpu", "500m"), cpuNode, "1"},
		{"nothing", nil, cpuNode, "0"},
		{"more than the node has", amounts("cpu", "32"), cpuNode, "32"},
		{"GPUs of a node that has none now", amounts("nvidia.com/gpu", "1", "cpu", "8"), cpuNode, "0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, test.want, text(Price{PerHour: amount("32"), Allocatable: test.allocatable}.Rate(test.requests)))
		})
	}
}

func costs(total, perHour, until string) *mlv1.CostStatus {
	return &mlv1.CostStatus{Currency: "USD", Total: total, PerHour: perHour, Time: ptr.To(metav1.NewTime(at(until)))}
}

func runs(start, perHour string) Usage {
	return Usage{Start: at(start), PerHour: amount(perHour), Currency: "USD"}
}

func ran(start, end, perHour string) Usage {
	u := runs(start, perHour)
	u.End = at(end)
	return u
}

func TestCharge(t *testing.T) {
	unpriced := Usage{Start: at("0s")}
	euro := Usage{Start: at("0s"), PerHour: amount("5"), Currency: "EUR"}
	alsoUnpriced := func(c *mlv1.CostStatus) *mlv1.CostStatus { c.UnpricedWorkers = 1; return c }
	for _, test := range []struct {
		name   string
		before *mlv1.CostStatus
		usages []Usage
		now    string
		want   *mlv1.CostStatus
	}{
		{"no pods", nil, nil, "1h", nil},
		{"a pod on a node without price", nil, []Usage{unpriced}, "1h", nil},
		{"a pod for half an hour", nil, []Usage{runs("30m", "3")}, "1h", costs("1.5", "3", "1h")},
		{"two pods at different prices", nil, []Usage{runs("0s", "3"), runs("30m", "1")}, "1h", costs("3.5", "4", "1h")},
		{"only what was not charged yet", costs("7", "3", "30m"), []Usage{runs("0s", "3")}, "1h", costs("8.5", "3", "1h")},
		{"a pod that has ended since", costs("7", "3", "30m"), []Usage{ran("0s", "40m", "3")}, "1h", costs("7.5", "0", "1h")},
		{"a pod that had ended before", costs("7", "3", "30m"), []Usage{ran("0s", "30m", "3")}, "1h", costs("7", "0", "1h")},
		{"one ended, and another started on a cheaper node", costs("7", "3", "30m"), []Usage{ran("0s", "40m", "3"), runs("50m", "1.2")}, "1h", costs("7.7", "1.2", "1h")},
		{"no pods any more", costs("7", "3", "30m"), nil, "1h", costs("7", "0", "1h")},
		{"at the same second again", costs("7", "3", "1h"), []Usage{runs("0s", "3")}, "1h", costs("7", "3", "1h")},
		{"a clock that was put back", costs("7", "3", "1h"), []Usage{runs("0s", "3")}, "59m", costs("7", "3", "1h")},
		{"an end that a node tells from the future", costs("7", "3", "30m"), []Usage{ran("0s", "2h", "3")}, "1h", costs("8.5", "0", "1h")},
		{"a pod beside that has no price", nil, []Usage{runs("0s", "3"), unpriced}, "1h", alsoUnpriced(costs("3", "3", "1h"))},
		{"a pod beside in another currency", nil, []Usage{runs("0s", "3"), euro}, "1h", alsoUnpriced(costs("3", "3", "1h"))},
		{"a third of a cent", nil, []Usage{runs("0s", "0.01")}, "20m", costs("0.003333333", "0.01", "20m")},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := test.before.DeepCopy()
			assert.Equal(t, test.want, Charge(test.before, test.usages, at(test.now)))
			assert.Equal(t, before, test.before, "it changes nothing")
		})
	}
}

// However often a cost is written in between, the sum is the same.
func TestChargeDoesNotDependOnWhenItIsWritten(t *testing.T) {
	usages := func(now time.Time) (list []Usage) {
		for _, u := range []Usage{ran("0s", "25m", "3"), ran("3m", "31m", "1.7"), ran("33m", "58m", "0.9"), ran("33m", "1h", "2")} {
			if u.Start.After(now) {
				continue
			}
			if u.End.After(now) {
				u.End = time.Time{}
			}
			list = append(list, u)
		}
		return list
	}
	want := Charge(nil, usages(at("2h")), at("2h"))
	for _, every := range []time.Duration{7 * time.Second, 30 * time.Second, 11 * time.Minute, time.Hour} {
		var written *mlv1.CostStatus
		for now := noon; !now.After(at("2h")); now = now.Add(every) {
			written = Charge(written, usages(now), now)
		}
		written = Charge(written, usages(at("2h")), at("2h"))
		assert.InDelta(t, number(t, want.Total), number(t, written.Total), 1e-6, "every %s", every)
	}
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	value, _ := amount(text).Float64()
	require.NotZero(t, value)
	return value
}
