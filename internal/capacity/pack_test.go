package capacity_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/dcnlab/spot-training-operator/internal/capacity"
)

const gib = 1 << 30

var shape = capacity.Resources{MilliCPU: 4000, Memory: 16 * gib, GPUs: 2}

// noon is when the tests' pods are refused.
var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

// pod that the scheduler refused.
func pod(name string, milliCPU, gpus int64) capacity.Pod {
	return capacity.Pod{Name: name, Job: "SpotInstanceJob/j", Needs: capacity.Resources{MilliCPU: milliCPU, Memory: gib, GPUs: gpus}, Refused: true, Since: noon}
}

// running pod that the scheduler has not seen.
func running(name string, milliCPU, gpus int64) capacity.Pod {
	p := pod(name, milliCPU, gpus)
	p.Refused = false
	return p
}

// spread has a pod stay off the nodes of others of its app.
func spread(p capacity.Pod) capacity.Pod {
	p.Labels = labels.Set{"app": "a"}
	p.Apart = []labels.Selector{labels.SelectorFromSet(labels.Set{"app": "a"})}
	return p
}

func TestPack(t *testing.T) {
	tests := map[string]struct {
		pods        []capacity.Pod
		bins        []capacity.Bin
		new         [][]string
		used        []string
		tooLarge    []string
		unexplained []string
	}{
		"nothing needs nothing": {},
		"pods share a new node": {
			pods: []capacity.Pod{pod("a", 1000, 1), pod("b", 1000, 1)}, new: [][]string{{"a", "b"}},
		},
		"each needs its own for its GPUs": {
			pods: []capacity.Pod{pod("a", 100, 2), pod("b", 100, 2)}, new: [][]string{{"a"}, {"b"}},
		},
		"the largest go first, so that the small ones fill the gaps": {
			pods: []capacity.Pod{pod("small", 1000, 0), pod("large", 3000, 2), pod("middle", 1000, 1)},
			new:  [][]string{{"large", "small"}, {"middle"}},
		},
		"pods that must be apart are": {
			pods: []capacity.Pod{spread(pod("a", 100, 0)), spread(pod("b", 100, 0)), pod("c", 100, 0)},
			new:  [][]string{{"a", "c"}, {"b"}},
		},
		"an instance that is on its way is used": {
			pods: []capacity.Pod{pod("a", 3000, 0), pod("b", 3000, 0)},
			bins: []capacity.Bin{{Name: "coming", Free: shape}}, new: [][]string{{"b"}}, used: []string{"coming"},
		},
		"a node that the scheduler knows is no use to a pod that it refused": {
			pods: []capacity.Pod{pod("a", 1000, 0)},
			bins: []capacity.Bin{{Name: "full", Free: shape, Tried: noon, Pods: []capacity.Pod{pod("x", 0, 0)}}},
			new:  [][]string{{"a"}},
		},
		"it is to a pod that will lose its node": {
			pods: []capacity.Pod{running("a", 1000, 0)},
			bins: []capacity.Bin{{Name: "half", Free: shape, Tried: noon, Pods: []capacity.Pod{pod("x", 0, 0)}}},
			used: []string{"half"},
		},
		"but not when they must be apart": {
			pods: []capacity.Pod{spread(running("a", 1000, 0))},
			bins: []capacity.Bin{{Name: "half", Free: shape, Tried: noon, Pods: []capacity.Pod{spread(pod("x", 0, 0))}}},
			new:  [][]string{{"a"}},
		},
		"a pod larger than the machine type fits nowhere": {
			pods: []capacity.Pod{pod("a", 100, 3)}, tooLarge: []string{"a"},
		},
		"an empty node that the scheduler refused shows that room is not what the pod lacks": {
			pods: []capacity.Pod{pod("a", 1000, 0)}, bins: []capacity.Bin{{Name: "idle", Free: shape, Tried: noon}},
			unexplained: []string{"a"},
		},
		"an empty node that has taken no pods since before may help": {
			pods: []capacity.Pod{pod("a", 1000, 0)}, bins: []capacity.Bin{{Name: "idle", Free: shape, Tried: noon.Add(-time.Second)}},
			used: []string{"idle"},
		},
		"an empty node that is too small shows nothing": {
			pods: []capacity.Pod{pod("a", 1000, 2)},
			bins: []capacity.Bin{{Name: "small", Free: capacity.Resources{MilliCPU: 4000, Memory: gib}, Tried: noon}},
			new:  [][]string{{"a"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before := fmt.Sprint(test.pods, test.bins)

			got := capacity.Pack(test.pods, test.bins, shape)

			var fresh [][]string
			for _, pods := range got.New {
				fresh = append(fresh, names(pods))
			}
			var used []string
			for name := range got.Used {
				used = append(used, name)
			}
			assert.Equal(t, test.new, fresh, "new nodes")
			require.Len(t, got.Bins, len(test.bins)+len(test.new))
			for n, pods := range got.New {
				assert.Equal(t, pods, got.Bins[len(test.bins)+n].Pods)
			}
			assert.Equal(t, test.used, used, "used")
			assert.Equal(t, test.tooLarge, names(got.TooLarge), "too large")
			assert.Equal(t, test.unexplained, names(got.Unexplained), "unexplained")
			assert.Equal(t, before, fmt.Sprint(test.pods, test.bins), "its arguments are not changed")
		})
	}
}

func names(pods []capacity.Pod) []string {
	var all []string
	for _, p := range pods {
		all = append(all, p.Name)
	}
	return all
}

func TestPackIsTheSameInWhateverOrder(t *testing.T) {
	pods := []capacity.Pod{pod("a", 1500, 1), pod("b", 1500, 1), pod("c", 500, 0), pod("d", 2500, 0)}
	want := fmt.Sprint(capacity.Pack(pods, nil, shape))
	for range len(pods) {
		pods = append(pods[1:], pods[0])
		assert.Equal(t, want, fmt.Sprint(capacity.Pack(pods, nil, shape)))
	}
}

func TestRequests(t *testing.T) {
	container := func(cpu, memory, gpus string, always bool) corev1.Container {
		c := corev1.Container{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory), capacity.GPU: resource.MustParse(gpus),
		}}}
		if always {
			c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		}
		return c
	}
	p := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{container("3", "1Gi", "0", false), container("250m", "1Gi", "0", true)},
		Containers:     []corev1.Container{container("1", "1Gi", "1", false), container("500m", "1Gi", "1", false)},
		Overhead:       corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")},
	}}
	assert.Equal(t, capacity.Resources{MilliCPU: 3000, Memory: 4 * gib, GPUs: 2}, capacity.Requests(p))
}

func TestApartReadsWhatIsRequiredOfHosts(t *testing.T) {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	p := &corev1.Pod{Spec: corev1.PodSpec{Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{TopologyKey: corev1.LabelHostname, LabelSelector: selector}, {TopologyKey: corev1.LabelTopologyZone, LabelSelector: selector},
		},
	}}}}
	got := capacity.Apart(p)
	assert.Len(t, got, 1)
	assert.True(t, got[0].Matches(labels.Set{"app": "a"}))
	assert.Empty(t, capacity.Apart(&corev1.Pod{}))
}
