package scheduler_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/utils/ptr"

	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
)

func TestWhyAJobWaits(t *testing.T) {
	j := job("j")
	for name, c := range map[string]struct {
		world           world
		reason, message string
	}{
		"no such queue": {nodes().pending(j.queue("q")), "QueueNotFound",
			"waits for the AIJobQueue q, which does not exist: create it, or name another queue"},
		"no such cluster": {nodes().pending(j.cluster("c")), "ClusterNotFound",
			"waits for the ComputeCluster c, which does not exist: create it, or name another cluster"},
		"suspended": {nodes().queues(queue("q").suspended()).pending(j.queue("q")), "QueueSuspended",
			"waits for the AIJobQueue q, which admits no job while its spec.suspend is true"},
		"jobs of the queue": {nodes(node("a", 9)).queues(queue("q").maxJobs(1)).running(job("r").queue("q").runs("a")).pending(j.queue("q")), "QuotaReached",
			"AIJobQueue q runs 1 job, as many as it may"},
		"quota": {nodes(node("a", 9)).queues(queue("q").gpus(3)).running(job("r").queue("q").gpus(2).runs("a")).pending(j.queue("q").gpus(2)), "QuotaReached",
			"needs 2 nvidia.com/gpu: AIJobQueue q holds 2 of the 3 that it may"},
		"quota of memory": {nodes(node("a", 9)).queues(queue("q").quota(scheduler.Quota{Memory: ptr.To[int64](4 << 30)})).running(job("r").queue("q").needs(scheduler.Resources{Memory: 3 << 30}).runs("a")).
			pending(j.queue("q").needs(scheduler.Resources{Memory: 2 << 30})), "QuotaReached",
			"needs 2Gi memory: AIJobQueue q holds 3Gi of the 4Gi that it may"},
		"more than the quota": {nodes(node("a", 9)).queues(queue("q").gpus(3)).pending(j.queue("q").gpus(4)), "QuotaReached",
			"needs 4 nvidia.com/gpu, but AIJobQueue q may never hold more than 3 nvidia.com/gpu: raise that limit, or ask for less"},
		"borrowing": {nodes(node("a", 40)).queues(queue("q").gpus(4).cohort("c").borrows(1), queue("p").gpus(4).cohort("c")).
			running(job("r").queue("q").gpus(4).runs("a")).pending(j.queue("q").gpus(2)), "QuotaReached",
			"needs 2 nvidia.com/gpu: AIJobQueue q holds 4 of its 4 and the 1 that it may borrow"},
		"the cohort": {nodes(node("a", 40)).queues(queue("q").gpus(4).cohort("c"), queue("p").gpus(4).cohort("c")).
			running(job("r").queue("q").gpus(7).runs("a")).pending(j.queue("q").gpus(2)), "QuotaReached",
			"needs 2 nvidia.com/gpu: cohort c holds 7 of the 8 that it may"},
		"a user": {nodes(node("a", 9)).queues(queue("q").perUser(2)).running(job("r").queue("q").runs("a"), job("s").queue("q").runs("a")).pending(j.queue("q")), "QuotaReached",
			"user u in AIJobQueue q runs 2 jobs, as many as it may"},
		"a namespace": {nodes(node("a", 9)).queues(queue("q").perNamespace(1)).running(job("r").queue("q").runs("a")).pending(j.queue("q")), "QuotaReached",
			"needs 1 nvidia.com/gpu: namespace n in AIJobQueue q holds 1 of the 1 that it may"},
		"a cluster": {nodes(node("a", 9).label("c", "x")).clusters(cluster("x", "c", "x").maxJobs(1)).running(job("r").cluster("x").runs("a")).pending(j.cluster("x")), "QuotaReached",
			"ComputeCluster x runs 1 job, as many as it may"},
		"quota, though no node has the room either": {nodes(node("a", 2)).queues(queue("q").maxJobs(1)).running(job("r").queue("q").runs("a")).
			pending(j.queue("q").gpus(4)), "QuotaReached",
			"AIJobQueue q runs 1 job, as many as it may"},
		"quota kept for another": {nodes(node("a", 40)).queues(queue("q").gpus(8)).running(job("r").queue("q").runs("a")).
			pending(job("gang").queue("q").members(8).priority(90), j.queue("q")), "WaitingBehindGang",
			"needs 1 nvidia.com/gpu, which is kept for AIJob n/gang that comes first"},
		"room kept for another": {nodes(node("a", 4), node("b", 4)).running(job("r").runs("a")).
			pending(job("gang").members(2).gpus(4).priority(90), j), "WaitingBehindGang",
			"fits now, but would delay AIJob n/gang, which comes first and needs 2 pods of 4 nvidia.com/gpu each"},
		"too few GPUs": {nodes(node("a", 4), node("b", 4)).running(job("r").gpus(3).runs("a"), job("s").gpus(3).runs("b")).pending(j.gpus(4)), "InsufficientCapacity",
			"needs 4 nvidia.com/gpu on nodes that match; 2 are free"},
		"too few GPUs for a gang": {nodes(node("a", 4)).running(job("r").gpus(3).runs("a")).pending(j.members(4)), "InsufficientCapacity",
			"needs 4 nvidia.com/gpu on nodes that match; 1 is free"},
		"GPUs here and there": {nodes(node("a", 4), node("b", 4)).running(job("r").gpus(2).runs("a"), job("s").gpus(2).runs("b")).pending(j.gpus(4)), "InsufficientCapacity",
			"needs 4 nvidia.com/gpu on one node; the most that a node that matches has free is 2"},
		"GPUs here and there for a gang": {nodes(node("a", 4), node("b", 4), node("c", 4)).running(job("r").gpus(1).runs("a"), job("s").gpus(1).runs("b")).pending(j.members(2).gpus(4)), "InsufficientCapacity",
			"needs 2 pods of 4 nvidia.com/gpu each on nodes that match; 1 of the 2 fit"},
		"CPU": {nodes(node("a", 4)).running(job("r").needs(cpus(60)).runs("a")).pending(j.needs(cpus(5))), "InsufficientCapacity",
			"needs 5 cpu on nodes that match; 4 are free"},
		"memory": {nodes(node("a", 4)).running(job("r").needs(scheduler.Resources{Memory: 255 << 30}).runs("a")).pending(j.needs(scheduler.Resources{Memory: 2 << 30})), "InsufficientCapacity",
			"needs 2Gi memory on nodes that match; 1Gi is free"},
		"now this, now that": {nodes(node("a", 4), node("b", 4)).running(job("r").gpus(4).runs("a"), job("s").needs(cpus(64)).runs("b")).
			pending(j.needs(scheduler.Resources{GPUs: 1, MilliCPU: 1000})), "InsufficientCapacity",
			"needs 1 nvidia.com/gpu, 1 cpu on one node; no node that matches has all of that"},
		"larger than any node": {nodes(node("a", 4), node("b", 8)).pending(j.gpus(9)), "InsufficientCapacity",
			"needs 9 nvidia.com/gpu on one node, but the largest that matches has 8, even when no job runs"},
		"more than all nodes": {nodes(node("a", 4), node("b", 4)).pending(j.members(9)), "InsufficientCapacity",
			"needs 9 nvidia.com/gpu on nodes that match, but there are only 8, even when no job runs"},
		"no node matches": {nodes(node("a", 4)).pending(j.selector("x", "y")), "InsufficientCapacity",
			"needs 1 nvidia.com/gpu on nodes that match by selector, affinity and taints, but none does"},
		"a zone": {nodes(node("a", 4).label("z", "1"), node("b", 4).label("z", "2")).running(job("r").runs("a"), job("s").gpus(2).runs("b")).pending(j.members(4).topology("z")), "InsufficientCapacity",
			"needs 4 pods of 1 nvidia.com/gpu each on nodes that match with one value of the label z; the most that fit on such nodes are 3 of 4"},
		"places for pods": {nodes(node("a", 0).room(scheduler.Resources{Pods: 1})).running(job("r").needs(scheduler.Resources{}).runs("a")).pending(j.needs(scheduler.Resources{})), "InsufficientCapacity",
			"needs room for 1 pod on nodes that match; 0 are free"},
		"in a cluster": {nodes(node("a", 4).label("c", "x"), node("b", 9)).clusters(cluster("x", "c", "x")).running(job("r").since(time.Hour).at("a")).pending(j.gpus(4).cluster("x")), "InsufficientCapacity",
			"needs 4 nvidia.com/gpu on nodes of ComputeCluster x that match; 3 are free"},
	} {
		t.Run(name, func(t *testing.T) {
			wait := c.world.schedule().wait("j")
			assert.Equal(t, c.reason, wait.Reason)
			assert.Equal(t, c.message, wait.Message)
		})
	}
}
