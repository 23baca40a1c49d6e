package scheduler_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
)

func TestWhereAJobFits(t *testing.T) {
	small := scheduler.Resources{MilliCPU: 2000, Memory: 4 << 30, EphemeralStorage: 1 << 30, GPUs: 2, Pods: 2}
	for name, c := range map[string]struct {
		world world
		nodes []string
	}{
		"enough of everything":       {nodes(node("a", 0).room(small)).pending(job("j").needs(small)), []string{"a"}},
		"too little CPU":             {nodes(node("a", 0).room(small)).pending(job("j").needs(scheduler.Resources{MilliCPU: 2001})), nil},
		"too little memory":          {nodes(node("a", 0).room(small)).pending(job("j").needs(scheduler.Resources{Memory: 4<<30 + 1})), nil},
		"too little storage":         {nodes(node("a", 0).room(small)).pending(job("j").needs(scheduler.Resources{EphemeralStorage: 1<<30 + 1})), nil},
		"too few GPUs":               {nodes(node("a", 0).room(small)).pending(job("j").gpus(3)), nil},
		"too few places for pods":    {nodes(node("a", 0).room(small)).pending(job("j").members(3).needs(scheduler.Resources{MilliCPU: 1})), nil},
		"a pod that asks nothing":    {nodes(node("a", 0).room(scheduler.Resources{Pods: 1})).pending(job("j").needs(scheduler.Resources{})), []string{"a"}},
		"others' pods":               {nodes(node("a", 2).requested(scheduler.Resources{GPUs: 1})).pending(job("j").gpus(2)), nil},
		"running jobs":               {nodes(node("a", 2)).running(job("r").runs("a")).pending(job("j").gpus(2)), nil},
		"running jobs' pods to come": {nodes(node("a", 2)).running(job("r").members(2).runs("a", "a")).pending(job("j")), nil},
		"quota held without a place": {nodes(node("a", 2)).running(job("r")).pending(job("j").gpus(2)), []string{"a"}},
		"totals are not enough":      {nodes(node("a", 2), node("b", 2)).pending(job("j").gpus(4)), nil},
		"a gang over nodes":          {nodes(node("a", 2), node("b", 2)).pending(job("j").members(4)), []string{"a", "a", "b", "b"}},
		"a gang or nothing":          {nodes(node("a", 2), node("b", 1)).pending(job("j").members(4)), nil},
		"groups together": {nodes(node("a", 2), node("b", 0)).pending(job("j").members(2).and(1, scheduler.Resources{MilliCPU: 64000})),
			[]string{"a", "a", "a"}},
		"the larger group first": {nodes(node("a", 2), node("b", 3)).pending(job("j").and(2, scheduler.Resources{GPUs: 2})), []string{"b", "a", "b"}},
		"the group first that fewer nodes suit": {nodes(node("a", 2).label("z", "1"), node("b", 2)).pending(job("j").gpus(2).and(1, scheduler.Resources{GPUs: 1}).selector("z", "1")),
			[]string{"b", "a"}},
		"a group that could leave another too few nodes": {nodes(
			node("a", 0).label("z", "1").room(scheduler.Resources{MilliCPU: 2000, Pods: 1}), node("b", 0).label("z", "2").room(scheduler.Resources{MilliCPU: 3000, Pods: 2}),
			node("c", 0).label("z", "2").room(scheduler.Resources{MilliCPU: 2000, Pods: 1})).
			pending(job("j").members(3).needs(scheduler.Resources{MilliCPU: 2000}).and(1, scheduler.Resources{}).selector("z", "2")), []string{"a", "c", "b", "b"}},
		"a group too many":           {nodes(node("a", 2), node("b", 0)).pending(job("j").members(2).and(3, scheduler.Resources{MilliCPU: 64000})), nil},
		"not ready":                  {nodes(node("a", 2).notReady()).pending(job("j")), nil},
		"selected":                   {nodes(node("a", 2), node("b", 2).label("gpu", "a100")).pending(job("j").selector("gpu", "a100")), []string{"b"}},
		"selected none":              {nodes(node("a", 2).label("gpu", "h100")).pending(job("j").selector("gpu", "a100")), nil},
		"tainted":                    {nodes(node("a", 2).taint("gpu", "yes", corev1.TaintEffectNoSchedule)).pending(job("j")), nil},
		"tainted for those that run": {nodes(node("a", 2).taint("gpu", "yes", corev1.TaintEffectNoExecute)).pending(job("j")), nil},
		"a taint that only prefers":  {nodes(node("a", 2).taint("gpu", "yes", corev1.TaintEffectPreferNoSchedule)).pending(job("j")), []string{"a"}},
		"tolerated": {nodes(node("a", 2).taint("gpu", "yes", corev1.TaintEffectNoSchedule)).pending(
			job("j").tolerates(corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists})), []string{"a"}},
		"another value tolerated": {nodes(node("a", 2).taint("gpu", "yes", corev1.TaintEffectNoSchedule)).pending(
			job("j").tolerates(corev1.Toleration{Key: "gpu", Value: "no"})), nil},
		"affinity":         {nodes(node("a", 2).label("z", "1"), node("b", 2).label("z", "2")).pending(job("j").affinity("z", corev1.NodeSelectorOpIn, "2", "3")), []string{"b"}},
		"affinity to none": {nodes(node("a", 2).label("z", "1")).pending(job("j").affinity("z", corev1.NodeSelectorOpDoesNotExist)), nil},
		"affinity and the zone of a volume": {nodes(node("a", 2).label("z", "1"), node("b", 2).label("gpu", "a100"), node("c", 2).label("z", "1").label("gpu", "a100")).
			pending(job("j").affinity("gpu", corev1.NodeSelectorOpIn, "a100").affinity("z", corev1.NodeSelectorOpIn, "1")), []string{"c"}},
		"a volume of a zone without room": {nodes(node("a", 2), node("b", 0).label("z", "1")).pending(job("j").affinity("z", corev1.NodeSelectorOpIn, "1")), nil},
		"a node to avoid":                 {nodes(node("a", 1), node("b", 8)).pending(job("j").avoids("a")), []string{"b"}},
		"wrong affinity":                  {nodes(node("a", 2).label("z", "1")).pending(job("j").affinity("z", "Perhaps", "1")), nil},
		"extended resource": {nodes(node("a", 0), node("b", 0).room(scheduler.Resources{Pods: 1, Extended: map[corev1.ResourceName]int64{"example.com/tpu": 2}})).
			pending(job("j").needs(scheduler.Resources{Extended: map[corev1.ResourceName]int64{"example.com/tpu": 2}})), []string{"b"}},
		"extended resource in use": {nodes(node("b", 0).room(scheduler.Resources{Pods: 9, Extended: map[corev1.ResourceName]int64{"example.com/tpu": 2}})).
			running(job("r").needs(scheduler.Resources{Extended: map[corev1.ResourceName]int64{"example.com/tpu": 1}}).runs("b")).
			pending(job("j").needs(scheduler.Resources{Extended: map[corev1.ResourceName]int64{"example.com/tpu": 2}})), nil},
		"one zone": {nodes(node("a", 2).label("z", "1"), node("b", 2).label("z", "2"), node("c", 2).label("z", "2")).
			pending(job("j").members(4).topology("z")), []string{"b", "b", "c", "c"}},
		"no zone has enough": {nodes(node("a", 2).label("z", "1"), node("b", 2).label("z", "2"), node("c", 1).label("z", "2"), node("d", 9)).
			pending(job("j").members(4).topology("z")), nil},
		"the zone that fits best": {nodes(node("a", 9).label("z", "1"), node("b", 4).label("z", "2")).pending(job("j").members(4).topology("z")),
			[]string{"b", "b", "b", "b"}},
		"nodes of the cluster": {nodes(node("a", 2), node("b", 2).label("c", "x")).clusters(cluster("x", "c", "x")).pending(job("j").cluster("x")), []string{"b"}},
		"the oldest nodes of the cluster": {nodes(node("a", 2).label("c", "x"), node("b", 2).label("c", "x").created(noon.Add(-48*time.Hour))).
			clusters(cluster("x", "c", "x").maxNodes(1)).pending(job("j").cluster("x").members(2)), []string{"b", "b"}},
		"more nodes than the cluster may have": {nodes(node("a", 2).label("c", "x"), node("b", 2).label("c", "x")).
			clusters(cluster("x", "c", "x").maxNodes(1)).pending(job("j").cluster("x").members(3)), nil},
		"whole nodes stay free":          {nodes(node("a", 8), node("b", 8), node("c", 8)).running(job("r").runs("b")).pending(job("j")), []string{"b"}},
		"nodes with GPUs stay free":      {nodes(node("a", 8), node("b", 0)).pending(job("j").needs(scheduler.Resources{MilliCPU: 100})), []string{"b"}},
		"a job without members has room": {nodes().pending(job("j").members(0)), []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			out := c.world.schedule()
			assert.Equal(t, c.nodes, out.nodesOf("j"))
			assert.Equal(t, c.nodes == nil, len(out.Waiting) == 1)
		})
	}
}
