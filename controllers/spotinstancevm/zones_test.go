package spotinstancevm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/utils/ptr"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
)

func TestChoose(t *testing.T) {
	standard := spotv1alpha1.ProvisioningStandard
	out := func(offers ...offer) map[offer]exhausted {
		known := map[offer]exhausted{}
		for n, o := range offers {
			known[o] = exhausted{until: noon.Add(time.Duration(n+1) * time.Minute), err: &cloud.Error{Class: cloud.Stockout}}
		}
		return known
	}
	tests := map[string]struct {
		fallback bool
		model    spotv1alpha1.ProvisioningModel
		known    map[offer]exhausted
		want     choice
	}{
		"the first zone":            {known: out(), want: choice{offer: offer{"a", spot, ""}}},
		"the next when it has none": {known: out(offer{"a", spot, ""}), want: choice{offer: offer{"b", spot, ""}}},
		"what it has at full price is no help": {known: out(offer{"a", spot, ""}, offer{"b", spot, ""}), want: choice{
			none: true, until: noon.Add(time.Minute), err: &cloud.Error{Class: cloud.Stockout},
		}},
		"unless it is allowed":    {fallback: true, known: out(offer{"a", spot, ""}, offer{"b", spot, ""}), want: choice{offer: offer{"a", standard, ""}}},
		"then in the next zone":   {fallback: true, known: out(offer{"a", spot, ""}, offer{"b", spot, ""}, offer{"a", standard, ""}), want: choice{offer: offer{"b", standard, ""}}},
		"spot goes before":        {fallback: true, known: out(offer{"a", spot, ""}), want: choice{offer: offer{"b", spot, ""}}},
		"instances at full price": {model: standard, known: out(offer{"a", spot, ""}), want: choice{offer: offer{"a", standard, ""}}},
		"an old refusal is no more": {
			known: map[offer]exhausted{{"a", spot, ""}: {until: noon}}, want: choice{offer: offer{"a", spot, ""}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			vm := &spotv1alpha1.SpotInstanceVM{}
			vm.Spec.ProvisioningModel, vm.Spec.AllowStandardFallback = test.model, ptr.To(test.fallback)
			assert.Equal(t, test.want, choose(vm, machineType{zones: []string{"a", "b"}}, test.known, noon))
		})
	}
}

func TestAZoneRestsLongerAfterEachRefusal(t *testing.T) {
	vm := aScene().vm
	key := keyOf(vm, offer{"a", spot, ""})
	var e exhaustion
	now := noon
	for _, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 15 * time.Minute, 15 * time.Minute} {
		e.refused(key, now, &cloud.Error{Class: cloud.Stockout})
		e.refused(key, now.Add(time.Second), &cloud.Error{Class: cloud.Stockout}) // of another that was on its way
		until := e.of(vm)[offer{"a", spot, ""}].until
		assert.Equal(t, want, until.Sub(now))
		now = until
	}
	e.granted(key)
	assert.Empty(t, e.of(vm))

	e.refused(key, now, nil)
	vm.Spec.GPU = &spotv1alpha1.GPU{Type: "nvidia-tesla-t4", Count: 1}
	assert.Empty(t, e.of(vm), "one with another GPU may be there")
}

func TestAHoldGrowsUntilTheSpecChanges(t *testing.T) {
	var h hold
	for _, want := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute} {
		h = h.extend(noon, 1, problem{reason: "Why"}, 0)
		assert.Equal(t, want, h.until.Sub(noon))
	}
	assert.True(t, h.isActive(noon, 1))
	assert.False(t, h.isActive(noon, 2))
	assert.Equal(t, 30*time.Second, h.extend(noon, 2, problem{}, 0).until.Sub(noon))
}

func TestAProblemSaysWhatToDo(t *testing.T) {
	for class, want := range map[cloud.Class]struct{ reason, remedy string }{
		cloud.Permission:  {"PermissionDenied", "give the service account the role"},
		cloud.Invalid:     {"InvalidSpec", "correct the spec"},
		cloud.Quota:       {"ProviderQuotaExceeded", "have the quota of the project raised"},
		cloud.Stockout:    {"ZoneExhausted", "name more zones"},
		cloud.Transient:   {"ProviderUnavailable", "it is tried again"},
		cloud.RateLimited: {"ProviderUnavailable", "it is tried again"},
	} {
		got := problemOf(&cloud.Error{Class: class, Code: "CODE", Message: "words of the provider"}, "an instance")
		assert.Equal(t, want.reason, got.reason)
		assert.Contains(t, got.message, want.remedy)
		assert.Contains(t, got.message, "CODE: words of the provider")
	}
}

func TestRetriesAreBounded(t *testing.T) {
	for tries, want := range map[int]time.Duration{0: time.Second, 1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 6: 30 * time.Second, 1000: 30 * time.Second} {
		assert.Equal(t, want, defaultPace.retryIn(tries))
	}
}
