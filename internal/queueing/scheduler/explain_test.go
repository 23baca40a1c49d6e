package scheduler_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/queueing/scheduler"
)

func TestWhyAJobWaits(t *testing.T) {
	j := job("j")
	for name, c := range map[string]struct {
		world           world
		reason, message string
	}{
		"no such queue": {nodes().pending(j.queue("q")), "QueueNotFound",
			"AIJobQueue q does not exist: create it, or name another queue"},
		"no queue": {nodes(node("a", 9)).requireQueue().pending(j), "QueueRequired",
			"spec.queueName: is not set, and the operator admits no job without a queue: name an AIJobQueue"},
		"another namespace": {nodes(node("a", 9)).queues(queue("q").selects("team", "x")).pending(j.queue("q")), "NamespaceNotSelected",
			"AIJobQueue q admits no job of namespace n: name another queue, or have an administrator change spec.namespaceSelector of the queue or the labels of the namespace"},
		"a priority above the queue's": {nodes(node("a", 9)).queues(queue("q").maxPriority(40)).pending(j.queue("q")), "PriorityTooHigh",
			"priority 50 is above spec.maxPriority 40 of AIJobQueue q: lower the priority of the job, or name another queue"},
		"an unknown user": {nodes(node("a", 9)).queues(queue("q").perUser(1)).running(job("r").in("m", "").queue("q").runs("a")).pending(j.in("n", "").queue("q")), "QuotaReached",
			"unknown user in AIJobQueue q: maxConcurrency reached (1)"},
		"no such cluster": {nodes().pending(j.cluster("c")), "ClusterNotFound",
			"ComputeCluster c does not exist: create it, or name another cluster"},
		"suspended": {nodes().queues(queue("q").suspended()).pending(j.queue("q")), "QueueSuspended",
			"AIJobQueue q admits no job while its spec.suspend is true"},
		"jobs of the queue": {nodes(node("a", 9)).queues(queue("q").maxJobs(1)).running(job("r").queue("q").runs("a")).pending(j.queue("q")), "QuotaReached",
			"AIJobQueue q: maxConcurrency reached (1)"},
		"quota": {nodes(node("a", 9)).queues(queue("q").gpus(3)).running(job("r").queue("q").gpus(2).runs("a")).pending(j.queue("q").gpus(2)), "QuotaReached",
			"AIJobQueue q: quota exceeded: requested 2 nvidia.com/gpu, used 2, limit 3"},
		"quota of memory": {nodes(node("a", 9)).queues(queue("q").quota(aiplatformv1alpha1.ResourceLimits{Memory: ptr.To(resource.MustParse("4Gi"))})).running(job("r").queue("q").needs(scheduler.Resources{Memory: 3 << 30}).runs("a")).
			pending(j.queue("q").needs(scheduler.Resources{Memory: 2 << 30})), "QuotaReached",
			"AIJobQueue q: quota exceeded: requested 2Gi memory, used 3Gi, limit 4Gi"},
		"more than the quota": {nodes(node("a", 9)).queues(queue("q").gpus(3)).pending(j.queue("q").gpus(4)), "QuotaReached",
			"AIJobQueue q: requested 4 nvidia.com/gpu exceeds the limit 3: raise the limit, or request less"},
		"borrowing": {nodes(node("a", 40)).queues(queue("q").gpus(4).cohort("c").borrows(1), queue("p").gpus(4).cohort("c")).
			running(job("r").queue("q").gpus(4).runs("a")).pending(j.queue("q").gpus(2)), "QuotaReached",
			"AIJobQueue q: quota exceeded: requested 2 nvidia.com/gpu, used 4, limit 5 (quota 4, borrowing limit 1)"},
		"the cohort": {nodes(node("a", 40)).queues(queue("q").gpus(4).cohort("c"), queue("p").gpus(4).cohort("c")).
			running(job("r").queue("q").gpus(7).runs("a")).pending(j.queue("q").gpus(2)), "QuotaReached",
			"cohort c: quota exceeded: requested 2 nvidia.com/gpu, used 7, limit 8"},
		"a user": {nodes(node("a", 9)).queues(queue("q").perUser(2)).running(job("r").queue("q").runs("a"), job("s").queue("q").runs("a")).pending(j.queue("q")), "QuotaReached",
			"user u in AIJobQueue q: maxConcurrency reached (2)"},
		"a namespace": {nodes(node("a", 9)).queues(queue("q").perNamespace(1)).running(job("r").queue("q").runs("a")).pending(j.queue("q")), "QuotaReached",
			"namespace n in AIJobQueue q: quota exceeded: requested 1 nvidia.com/gpu, used 1, limit 1"},
		"a cluster": {nodes(node("a", 9).label("c", "x")).clusters(cluster("x", "c", "x").maxJobs(1)).running(job("r").cluster("x").runs("a")).pending(j.cluster("x")), "QuotaReached",
			"ComputeCluster x: maxJobs reached (1)"},
		"quota, though no node has the room either": {nodes(node("a", 2)).queues(queue("q").maxJobs(1)).running(job("r").queue("q").runs("a")).
			pending(j.queue("q").gpus(4)), "QuotaReached",
			"AIJobQueue q: maxConcurrency reached (1)"},
		"quota kept for another": {nodes(node("a", 40)).queues(queue("q").gpus(8)).running(job("r").queue("q").runs("a")).
			pending(job("gang").queue("q").members(8).priority(90), j.queue("q")), "WaitingBehindGang",
			"behind AIJob n/gang: required capacity (1 nvidia.com/gpu) is reserved for an earlier job"},
		"room kept for another": {nodes(node("a", 4), node("b", 4)).running(job("r").runs("a")).
			pending(job("gang").members(2).gpus(4).priority(90), j), "WaitingBehindGang",
			"behind AIJob n/gang: required capacity is reserved for an earlier job, which requests 2 pods of 4 nvidia.com/gpu each"},
		"too few GPUs": {nodes(node("a", 4), node("b", 4)).running(job("r").gpus(3).runs("a"), job("s").gpus(3).runs("b")).pending(j.gpus(4)), "InsufficientCapacity",
			"nvidia.com/gpu: requested 4, available 2 on matching nodes"},
		"too few GPUs for a gang": {nodes(node("a", 4)).running(job("r").gpus(3).runs("a")).pending(j.members(4)), "InsufficientCapacity",
			"nvidia.com/gpu: requested 4, available 1 on matching nodes"},
		"GPUs here and there": {nodes(node("a", 4), node("b", 4)).running(job("r").gpus(2).runs("a"), job("s").gpus(2).runs("b")).pending(j.gpus(4)), "InsufficientCapacity",
			"nvidia.com/gpu: requested 4 on one node, at most 2 available on matching nodes"},
		"GPUs here and there for a gang": {nodes(node("a", 4), node("b", 4), node("c", 4)).running(job("r").gpus(1).runs("a"), job("s").gpus(1).runs("b")).pending(j.members(2).gpus(4)), "InsufficientCapacity",
			"requested 2 pods of 4 nvidia.com/gpu each: 1 of 2 fit on matching nodes"},
		"CPU": {nodes(node("a", 4)).running(job("r").needs(cpus(60)).runs("a")).pending(j.needs(cpus(5))), "InsufficientCapacity",
			"cpu: requested 5, available 4 on matching nodes"},
		"memory": {nodes(node("a", 4)).running(job("r").needs(scheduler.Resources{Memory: 255 << 30}).runs("a")).pending(j.needs(scheduler.Resources{Memory: 2 << 30})), "InsufficientCapacity",
			"memory: requested 2Gi, available 1Gi on matching nodes"},
		"now this, now that": {nodes(node("a", 4), node("b", 4)).running(job("r").gpus(4).runs("a"), job("s").needs(cpus(64)).runs("b")).
			pending(j.needs(scheduler.Resources{GPUs: 1, MilliCPU: 1000})), "InsufficientCapacity",
			"requested 1 nvidia.com/gpu, 1 cpu on one node: no matching node has all of it available"},
		"larger than any node": {nodes(node("a", 4), node("b", 8)).pending(j.gpus(9)), "InsufficientCapacity",
			"nvidia.com/gpu: requested 9 on one node, largest matching node has 8, even when no job runs"},
		"more than all nodes": {nodes(node("a", 4), node("b", 4)).pending(j.members(9)), "InsufficientCapacity",
			"nvidia.com/gpu: requested 9, total 8 on matching nodes, even when no job runs"},
		"no node matches": {nodes(node("a", 4)).pending(j.selector("x", "y")), "InsufficientCapacity",
			"requested 1 nvidia.com/gpu: no node matches the selector, affinity and tolerations"},
		"a zone": {nodes(node("a", 4).label("z", "1"), node("b", 4).label("z", "2")).running(job("r").runs("a"), job("s").gpus(2).runs("b")).pending(j.members(4).topology("z")), "InsufficientCapacity",
			"requested 4 pods of 1 nvidia.com/gpu each on matching nodes with the same value of label z: at most 3 of 4 fit"},
		"places for pods": {nodes(node("a", 0).room(scheduler.Resources{Pods: 1})).running(job("r").needs(scheduler.Resources{}).runs("a")).pending(j.needs(scheduler.Resources{})), "InsufficientCapacity",
			"pods: requested 1, available 0 on matching nodes"},
		"in a cluster": {nodes(node("a", 4).label("c", "x"), node("b", 9)).clusters(cluster("x", "c", "x")).running(job("r").since(time.Hour).at("a")).pending(j.gpus(4).cluster("x")), "InsufficientCapacity",
			"nvidia.com/gpu: requested 4, available 3 on matching nodes of ComputeCluster x"},
	} {
		t.Run(name, func(t *testing.T) {
			wait := c.world.schedule().wait("j")
			assert.Equal(t, c.reason, wait.Reason)
			assert.Equal(t, c.message, wait.Message)
		})
	}
}
