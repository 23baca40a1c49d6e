package trainingjob

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/training/preflight"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// checked is a job whose two workers check the network.
func checked() *builders.TrainingJobBuilder {
	return builders.TrainingJob("bert").Workers(2).Spec(func(s *mlv1.TrainingJobSpec) { s.Networking.Preflight = ptr.To(true) })
}

// checking is what is observed while the workers of a job check the network, and replica 0 reports the pairs.
func checking(job *mlv1.TrainingJob, pairs ...preflight.Pair) observed {
	workers := builders.Workers(job).Obj()
	o := see(job, workers,
		builders.Pod(workers, 0).On("a").At("10.0.0.10").InitRunning(preflight.Container).Obj(),
		builders.Pod(workers, 1).On("b").At("10.0.0.11").InitRunning(preflight.Container).Obj())
	o.read.Network, o.read.Reached = agentAddress, &preflight.Report{Pairs: pairs}
	return o
}

func TestTheConditionNamesWorkersThatDoNotReachOneAnother(t *testing.T) {
	job := checked().Obj()
	waiting := plan(checking(job))
	assert.Equal(t, agentAddress, waiting.network, "replica 0 is asked")
	assert.Equal(t, reasons.WorkersStarting, waiting.status.Reason)
	assert.Equal(t, "the workers check that they reach one another", messageOf(waiting, "Initialized"))
	assert.Nil(t, networkCondition(&waiting.status), "nothing is known yet")

	for cause, test := range map[preflight.Cause]struct{ reason, message string }{
		preflight.NotResolved: {reasons.PeerNotResolved, "worker 1 (pod bert-training-1-a0 on node b) does not reach worker 0 (pod bert-training-0-a0 on node a): " +
			"it says so; see whether the cluster's DNS runs and whether a NetworkPolicy keeps the pods from it"},
		preflight.NoAnswer: {reasons.PeerUnreachable, "it says so; let the job's pods connect to one another at all ports"},
		preflight.Refused:  {reasons.PeerRefused, "it says so; see whether a service mesh"},
	} {
		d := plan(checking(job, preflight.Pair{From: 1, To: 0, Cause: cause, Detail: "it says so"}))
		assert.Equal(t, "False "+test.reason, outlineOf(d).Conditions["NetworkReady"])
		assert.Contains(t, messageOf(d, "NetworkReady"), test.message)
		assert.Equal(t, messageOf(d, "NetworkReady"), messageOf(d, "Initialized"), "the job waits for it")
		assert.Equal(t, mlv1.StateInitializing, d.status.State)
		assert.Equal(t, test.reason, d.status.Reason)
	}
}

func TestOnlyWhatTheWorkersOfThisAttemptSayIsBelieved(t *testing.T) {
	job := checked().Obj()
	pair := preflight.Pair{From: 0, To: 1, Cause: preflight.NoAnswer, Detail: "it says so"}
	for name, change := range map[string]func(*observed){
		"another address":             func(o *observed) { o.read.Network = "http://10.0.0.99:9464" },
		"a worker that has not begun": func(o *observed) { o.pods[1].Status.InitContainerStatuses = nil },
		"a worker that does not exist": func(o *observed) {
			o.read.Reached.Pairs[0].To = 7
		},
		"a cause that is none": func(o *observed) { o.read.Reached.Pairs[0].Cause = "Anything" },
	} {
		o := checking(job, pair)
		change(&o)
		assert.Nil(t, networkCondition(ptr.To(plan(o).status)), name)
	}
}

func TestAMessageNamesAFewPairs(t *testing.T) {
	job := checked().Workers(4).Obj()
	workers := builders.Workers(job).Obj()
	o := see(job, workers)
	for replica := range 4 {
		o.pods = append(o.pods, builders.Pod(workers, replica).On("a").At("10.0.0.10").InitRunning(preflight.Container).Obj())
	}
	report := &preflight.Report{More: 6}
	for to := 1; to < 4; to++ {
		for _, from := range []int{0, 1} {
			report.Pairs = append(report.Pairs, preflight.Pair{From: from, To: to, Cause: preflight.NoAnswer, Detail: "no answer"})
		}
	}
	o.read.Network, o.read.Reached = agentAddress, report
	assert.Contains(t, messageOf(plan(o), "NetworkReady"), "; and 9 more; let the job's pods")
}

func TestTheNetworkIsReadyOnceAllWorkersHaveReachedOneAnother(t *testing.T) {
	job := checked().Obj()
	workers := builders.Workers(job).Obj()
	one := builders.Pod(workers, 1).On("b").InitRunning(preflight.Container).Obj()
	done := builders.Pod(workers, 0).On("a").InitEnded(preflight.Container, 0, "").Running().Obj()
	assert.Nil(t, networkCondition(ptr.To(plan(see(job, workers, done, one)).status)))

	d := plan(see(job, workers, done, builders.Pod(workers, 1).On("b").InitEnded(preflight.Container, 0, "").Running().Obj()))

	assert.Equal(t, "True PeersReachable", outlineOf(d).Conditions["NetworkReady"])
	assert.Equal(t, mlv1.StateRunning, d.status.State)
	assert.Empty(t, d.network)
}

func TestAPlaceIsGivenBackWhenTheWorkersDoNotReachOneAnother(t *testing.T) {
	job := admittedJob(inQueue("bert").Spec(func(s *mlv1.TrainingJobSpec) { s.Networking.Preflight = ptr.To(true) }), "a", "b")
	pair := preflight.Pair{From: 0, To: 1, Cause: preflight.NoAnswer, Detail: "it says so"}
	told := plan(checking(job, pair))
	require.Equal(t, "False PeerUnreachable", outlineOf(told).Conditions["NetworkReady"])
	assert.Empty(t, told.status.Admission.Releasing)
	job.Status = told.status

	early := plan(checking(job, pair).after(5*time.Minute - time.Millisecond))
	assert.Empty(t, early.status.Admission.Releasing)
	assert.Equal(t, time.Millisecond, early.again)
	late := plan(checking(job, pair).after(5 * time.Minute))
	assert.Contains(t, late.status.Admission.Releasing, "worker 0 (pod bert-training-0-a0 on node a) does not reach worker 1")

	later := checking(job, pair).after(time.Hour)
	for _, pod := range later.pods {
		pod.Status.InitContainerStatuses[0].State.Running.StartedAt.Time = builders.Noon.Add(time.Hour - time.Minute)
	}
	assert.Empty(t, plan(later).status.Admission.Releasing, "that was an earlier attempt")
}
