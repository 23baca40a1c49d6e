package workflow

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/crash"
	"github.com/dcnlab/spot-training-operator/test/harness/managers"
)

// cluster is a namespace of a real API server in which the test plays the controller of AIJobs.
type cluster struct {
	client.Client

	t         *testing.T
	config    *rest.Config
	namespace string
	// made is how often an AIJob was seen of each stage and run.
	made map[string]map[types.UID]bool
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	config := api.Config(t)
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	require.NoError(t, c.Create(t.Context(), namespace))
	return &cluster{Client: c, t: t, config: config, namespace: namespace.Name, made: map[string]map[types.UID]bool{}}
}

// manager is a manager that runs.
type manager struct {
	*crash.Traffic

	events   *events.FakeRecorder
	triggers *triggers
	stop     func()
}

// start runs a manager for the cluster, set up like the real one. It crashes at the cut; nil for never.
func (c *cluster) start(at *crash.Cut) *manager { return c.startAt(at, clock.RealClock{}) }

func (c *cluster) startAt(at *crash.Cut, now clock.PassiveClock) *manager {
	c.t.Helper()
	m := &manager{Traffic: &crash.Traffic{Cut: at}, events: events.NewFakeRecorder(1000)}
	mgr := managers.New(c.t, c.config, c.Scheme(), cache.Options{DefaultNamespaces: map[string]cache.Config{c.namespace: {}}}, m.Wrap)
	reconciler := &Reconciler{Client: mgr.GetClient(), Direct: mgr.GetAPIReader(), Clock: now, Recorder: m.events}
	require.NoError(c.t, reconciler.SetupWithManager(mgr.Context, mgr, Options{Concurrency: 2}))
	m.triggers = reconciler.triggers
	m.stop = mgr.Run()
	return m
}

// agent creates an Agent like that of the world's.
func (c *cluster) agent(name string) *aiplatformv1alpha1.Agent {
	c.t.Helper()
	agent := agentNamed(name)
	agent.Namespace = c.namespace
	require.NoError(c.t, c.Create(c.t.Context(), agent))
	return agent
}

// submit creates the workflow of a world.
func (c *cluster) submit(w *world) *aiplatformv1alpha1.AgentWorkflow {
	c.t.Helper()
	workflow := &aiplatformv1alpha1.AgentWorkflow{
		ObjectMeta: metav1.ObjectMeta{Name: w.workflow.Name, Namespace: c.namespace}, Spec: *w.workflow.Spec.DeepCopy(),
	}
	if workflow.Spec.Trigger.Type == aiplatformv1alpha1.TriggerManual {
		workflow.Spec.Trigger.Config = nil
	}
	require.NoError(c.t, c.Create(c.t.Context(), workflow))
	return workflow
}

// jobs are the AIJobs there are, by stage, of the run.
func (c *cluster) jobs(run string) map[string]*aiplatformv1alpha1.AIJob {
	c.t.Helper()
	var list aiplatformv1alpha1.AIJobList
	require.NoError(c.t, c.List(c.t.Context(), &list, client.InNamespace(c.namespace)))
	jobs := map[string]*aiplatformv1alpha1.AIJob{}
	for i := range list.Items {
		job := &list.Items[i]
		stage, of := job.Labels[aiplatformv1alpha1.LabelStage], job.Labels[aiplatformv1alpha1.LabelWorkflowRun]
		if c.made[of+"/"+stage] == nil {
			c.made[of+"/"+stage] = map[types.UID]bool{}
		}
		c.made[of+"/"+stage][job.UID] = true
		if of == run {
			jobs[stage] = job
		}
	}
	return jobs
}

// job waits for the AIJob of a stage of the first run.
func (c *cluster) job(stage string) *aiplatformv1alpha1.AIJob {
	c.t.Helper()
	var job *aiplatformv1alpha1.AIJob
	await(c.t, "the AIJob of stage "+stage, func() bool {
		job = c.jobs("1")[stage]
		return job != nil
	})
	return job
}

// patch writes the status of an AIJob, as its controller would.
func (c *cluster) patch(job *aiplatformv1alpha1.AIJob, set func(*aiplatformv1alpha1.AIJobStatus)) {
	c.t.Helper()
	before := job.DeepCopy()
	set(&job.Status)
	require.NoError(c.t, c.Status().Patch(c.t.Context(), job, client.MergeFrom(before)))
}

func (c *cluster) phase(job *aiplatformv1alpha1.AIJob, phase aiplatformv1alpha1.AIJobPhase, reason string, outputs ...string) {
	c.t.Helper()
	c.patch(job, func(s *aiplatformv1alpha1.AIJobStatus) {
		s.Phase, s.Reason = phase, reason
		now := metav1.Now()
		if phase == aiplatformv1alpha1.AIJobRunning {
			s.StartTime = &now
		}
		if s.Phase.Ended() {
			s.CompletionTime = &now
		}
		for i := 0; i < len(outputs); i += 2 {
			if s.Outputs == nil {
				s.Outputs = map[string]string{}
			}
			s.Outputs[outputs[i]] = outputs[i+1]
		}
	})
}

// reach waits until a workflow is as it should be, and reads it.
func (c *cluster) reach(workflow *aiplatformv1alpha1.AgentWorkflow, what string, is func(*aiplatformv1alpha1.AgentWorkflowStatus) bool) {
	c.t.Helper()
	defer func() {
		if c.t.Failed() {
			c.t.Logf("the workflow is %s: %s %v", phases(workflow.Status), workflow.Status.Message, reasonsOf(workflow.Status))
		}
	}()
	await(c.t, "the workflow being "+what, func() bool {
		require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKeyFromObject(workflow), workflow))
		return is(&workflow.Status)
	})
}

func in(phase aiplatformv1alpha1.WorkflowPhase) func(*aiplatformv1alpha1.AgentWorkflowStatus) bool {
	return func(s *aiplatformv1alpha1.AgentWorkflowStatus) bool { return s.Phase == phase }
}

// touch has a workflow looked at again, and waits until that has been.
func (c *cluster) touch(m *manager, workflow *aiplatformv1alpha1.AgentWorkflow) {
	c.t.Helper()
	// A wrong agent is written about, and the right one again: what the plan wants besides would be written too.
	before := len(m.Written())
	right := workflow.Spec.TimeoutSeconds
	set := func(seconds *int64) {
		c.t.Helper()
		require.NoError(c.t, c.Get(c.t.Context(), client.ObjectKeyFromObject(workflow), workflow))
		patched := workflow.DeepCopy()
		patched.Spec.TimeoutSeconds = seconds
		require.NoError(c.t, c.Patch(c.t.Context(), patched, client.MergeFrom(workflow)))
		c.reach(workflow, "looked at again", func(s *aiplatformv1alpha1.AgentWorkflowStatus) bool {
			return s.ObservedGeneration == patched.Generation
		})
	}
	set(ptr.To[int64](86400))
	set(right)
	require.Equal(c.t, before+2, len(m.Written()), "writes: %q", m.Written()[before:])
}

func requestFor(workflow *aiplatformv1alpha1.AgentWorkflow) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKeyFromObject(workflow)}
}
