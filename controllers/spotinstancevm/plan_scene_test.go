package spotinstancevm

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/capacity"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
)

func allocatable(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

// scene is what a plan is made from.
type scene struct{ observed }

// aScene has the SpotInstanceVM t4, without instances, and zones that were just listed.
func aScene(edits ...func(*scene)) *scene {
	vm := &spotv1alpha1.SpotInstanceVM{ObjectMeta: metav1.ObjectMeta{Name: "t4", Namespace: "team", UID: "uid", Generation: 1}}
	vm.Spec.GCP = spotv1alpha1.GCP{Project: "project", Zone: "a", Zones: []string{"b"}, MachineType: "n1-standard-4"}
	vm.Spec.MaxInstances = 3
	names := 0
	s := &scene{observed{
		now: noon, vm: vm, reachable: true, exhausted: map[offer]exhausted{},
		memo:   vmMemo{instances: map[string]*memo{}, ended: map[string]time.Time{}},
		types:  []machineType{{name: "n1-standard-4", shape: &cloud.Shape{MilliCPU: 4000, MemoryBytes: 15 << 30}, zones: []string{"a", "b"}}},
		listed: map[string]time.Time{"a": noon.Add(-time.Second), "b": noon.Add(-time.Second)},
		nodes:  map[string]*corev1.Node{}, podsOn: map[string][]*corev1.Pod{}, rechecked: map[string]bool{}, pace: defaultPace,
		uses:    map[string]*queueing.NodeUse{},
		newName: func() string { names++; return fmt.Sprintf("new%d", names) }, newID: func() string { names++; return fmt.Sprintf("id%d", names) },
	}}
	for _, edit := range edits {
		edit(s)
	}
	for n, i := range s.instances {
		s.instances[n] = s.attach(i)
	}
	return s
}

// waiting pods that need three cores each, of replicas of the job bert.
func waiting(replicas ...string) func(*scene) {
	return func(s *scene) {
		for _, index := range replicas {
			s.pods = append(s.pods, aPod("pod-"+index, refused, replica(index), needs("3")))
		}
	}
}

// refusedSince has the scheduler have found no room for the pods for so long.
func refusedSince(ago time.Duration) func(*scene) {
	return func(s *scene) {
		for _, pod := range s.pods {
			pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(noon.Add(-ago))
		}
	}
}

func needs(cpu string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
		}}}
	}
}

// has an instance in the status, and what is known of it.
func has(name string, state spotv1alpha1.InstanceState, edits ...func(*scene, *instance)) func(*scene) {
	return func(s *scene) {
		i := &instance{ProvisionedInstance: spotv1alpha1.ProvisionedInstance{
			Name: name, Zone: "a", RequestID: "request", ProvisioningModel: spotv1alpha1.ProvisioningSpot, State: state,
		}}
		if state != spotv1alpha1.InstancePlanned && state != spotv1alpha1.InstanceDeleting {
			exists("RUNNING")(s, i)
		}
		i.asOf = s.listed["a"]
		for _, edit := range edits {
			edit(s, i)
		}
		s.instances = append(s.instances, i)
		s.vm.Status.ProvisionedInstances = append(s.vm.Status.ProvisionedInstances, i.ProvisionedInstance)
	}
}

// exists says what the provider says of it.
func exists(state string) func(*scene, *instance) {
	return func(_ *scene, i *instance) {
		i.CreationTime = &metav1.Time{Time: noon.Add(-time.Minute)}
		i.seen = &cloud.Instance{Name: i.Name, Zone: i.Zone, State: state, Created: i.CreationTime.Time, InternalIP: "10.0.0.9", ID: "42"}
	}
}

// unlisted: it has existed, and the zone's list does not show it.
func unlisted(_ *scene, i *instance) {
	i.CreationTime = &metav1.Time{Time: noon.Add(-time.Minute)}
	i.seen = nil
}

func remembers(m memo) func(*scene, *instance) {
	return func(s *scene, i *instance) { s.memo.instances[i.Name] = &m }
}

func isNode(edits ...func(*corev1.Node)) func(*scene, *instance) {
	return func(s *scene, i *instance) { s.nodes[i.Name] = aNode(i.Name, edits...) }
}

// ofAnotherMachine: it has the name of an instance, and registered without its labels.
func ofAnotherMachine(node *corev1.Node) { node.Labels = nil }

// isReady has its node be ready for that long.
func isReady(ago time.Duration) func(*scene, *instance) {
	return func(s *scene, i *instance) {
		if s.nodes[i.Name] == nil {
			s.nodes[i.Name] = aNode(i.Name)
		}
		i.CreationTime = &metav1.Time{Time: noon.Add(-ago - time.Minute)}
		i.ReadyTime = &metav1.Time{Time: noon.Add(-ago)}
	}
}

func runs(pod string) func(*scene, *instance) {
	return func(s *scene, i *instance) {
		p := aPod(pod, on(i.Name), replica(pod), needs("3"))
		s.pods = append(s.pods, p)
		s.podsOn[i.Name] = append(s.podsOn[i.Name], p)
	}
}

// uses is what admission by queues knows of its node.
func uses(cpu string, jobs bool) func(*scene, *instance) {
	return func(s *scene, i *instance) {
		taken := resource.MustParse(cpu)
		s.uses[i.Name] = &queueing.NodeUse{Taken: capacity.Resources{MilliCPU: taken.MilliValue()}, Jobs: jobs}
	}
}

func idle(node *corev1.Node) {
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{
		Key: spotv1alpha1.TaintIdle, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &metav1.Time{Time: noon},
	})
}

func unverified(node *corev1.Node) {
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: spotv1alpha1.TaintUnverified, Effect: corev1.TaintEffectNoSchedule})
}

func notAllowed(s *scene) { s.forbidden = forbiddenIn(&corev1.Namespace{}) }

func recheckedNode(s *scene, i *instance) { s.rechecked[i.Name] = true }

func beingDeleted(s *scene) { s.vm.DeletionTimestamp = &metav1.Time{Time: noon.Add(-time.Minute)} }

func failed(class cloud.Class) request {
	return request{sentAt: noon.Add(-time.Second), settledAt: noon, err: &cloud.Error{Class: class, Message: "words of the provider"}}
}

func pending(operation string) request {
	return request{sentAt: noon.Add(-time.Second), operation: cloud.Operation{Name: operation, Zone: "a"}, next: noon}
}

func done() request {
	return request{sentAt: noon.Add(-2 * time.Second), settledAt: noon.Add(-time.Second)}
}

func exhaust(zone string, model spotv1alpha1.ProvisioningModel, class cloud.Class) func(*scene) {
	return func(s *scene) {
		s.exhausted[offer{zone, model, "n1-standard-4"}] = exhausted{until: noon.Add(time.Minute), err: &cloud.Error{Class: class, Message: "none left"}}
	}
}
