package rbac_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// workflow creates an Agent, and an AgentWorkflow of stages beside each other that events start. Their queue does not exist,
// so that nothing runs.
func (w *world) workflow(stages ...aiplatformv1alpha1.StageName) *aiplatformv1alpha1.AgentWorkflow {
	w.t.Helper()
	agent := &aiplatformv1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Name: "reader", Namespace: w.namespace}}
	agent.Spec.Image = "registry.example.com/reader:1"
	require.NoError(w.t, w.Create(w.t.Context(), agent))
	workflow := &aiplatformv1alpha1.AgentWorkflow{ObjectMeta: metav1.ObjectMeta{Name: "digest", Namespace: w.namespace}}
	workflow.Spec.QueueName = "nowhere"
	workflow.Spec.Trigger = aiplatformv1alpha1.Trigger{
		Type: aiplatformv1alpha1.TriggerEvent, Config: map[string]aiplatformv1alpha1.ParameterValue{"kind": "ConfigMap", "reason": "NewData"},
	}
	for _, name := range stages {
		workflow.Spec.Stages = append(workflow.Spec.Stages, aiplatformv1alpha1.Stage{Name: name, Agent: agent.Name})
	}
	require.NoError(w.t, w.Create(w.t.Context(), workflow))
	w.awaitWorkflow(workflow, "Pending", func(s *aiplatformv1alpha1.AgentWorkflowStatus) bool {
		return s.Phase == aiplatformv1alpha1.WorkflowPending
	})
	w.await("the Agent to know of the workflow", func(ctx context.Context) (bool, error) {
		err := w.Get(ctx, client.ObjectKeyFromObject(agent), agent)
		return err == nil && agent.Status.Workflows == 1, err
	})
	return workflow
}

// happens is an event that starts the workflow.
func (w *world) happens(at time.Time) {
	w.t.Helper()
	require.NoError(w.t, w.Create(w.t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "data-", Namespace: w.namespace},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: w.namespace, Name: "data"},
		Reason:         "NewData", Type: corev1.EventTypeNormal, LastTimestamp: metav1.NewTime(at),
	}))
}

func (w *world) awaitWorkflow(workflow *aiplatformv1alpha1.AgentWorkflow, what string, is func(*aiplatformv1alpha1.AgentWorkflowStatus) bool) {
	w.t.Helper()
	defer func() {
		if w.t.Failed() {
			w.t.Logf("the workflow is %+v", workflow.Status)
		}
	}()
	w.await("the workflow being "+what, func(ctx context.Context) (bool, error) {
		if err := w.Get(ctx, client.ObjectKeyFromObject(workflow), workflow); err != nil {
			return false, err
		}
		if !is(&workflow.Status) {
			return false, fmt.Errorf("it is %s: %s", workflow.Status.Phase, workflow.Status.Message)
		}
		return true, nil
	})
}

// aWorkflowIsStarted starts a workflow by events, has one of its AIJobs deleted and thereby the other cancelled, and does it
// so often that the AIJobs of the first start are removed.
func aWorkflowIsStarted(w *world) {
	workflow := w.workflow("left", "right")
	began := time.Now()
	for run := int32(1); run <= 4; run++ {
		w.happens(began.Add(time.Duration(run) * time.Minute))
		w.awaitWorkflow(workflow, "started", func(s *aiplatformv1alpha1.AgentWorkflowStatus) bool {
			return s.Run == run && len(s.Stages) == 2 && s.Stages[0].JobName != "" && s.Stages[1].JobName != ""
		})
		left := &aiplatformv1alpha1.AIJob{ObjectMeta: metav1.ObjectMeta{Name: workflow.Status.Stages[0].JobName, Namespace: w.namespace}}
		right := &aiplatformv1alpha1.AIJob{ObjectMeta: metav1.ObjectMeta{Name: workflow.Status.Stages[1].JobName, Namespace: w.namespace}}
		require.NoError(w.t, w.Delete(w.t.Context(), left, client.PropagationPolicy(metav1.DeletePropagationBackground)))
		w.await("the end of the other AIJob", func(ctx context.Context) (bool, error) {
			err := w.Get(ctx, client.ObjectKeyFromObject(right), right)
			if err != nil || !ptr.Deref(right.Spec.Cancel, false) || right.Status.Phase == aiplatformv1alpha1.AIJobCancelled {
				return err == nil && right.Status.Phase == aiplatformv1alpha1.AIJobCancelled, err
			}
			before := right.DeepCopy()
			right.Status.Phase = aiplatformv1alpha1.AIJobCancelled
			return true, w.Status().Patch(ctx, right, client.MergeFrom(before))
		})
		w.awaitWorkflow(workflow, "Failed", func(s *aiplatformv1alpha1.AgentWorkflowStatus) bool {
			return s.Run == run && s.Phase == aiplatformv1alpha1.WorkflowFailed
		})
	}
	w.await("the end of the AIJobs of the first start", func(ctx context.Context) (bool, error) {
		var jobs aiplatformv1alpha1.AIJobList
		err := w.List(ctx, &jobs, client.InNamespace(w.namespace), client.MatchingLabels{aiplatformv1alpha1.LabelWorkflowRun: "1"})
		return err == nil && len(jobs.Items) == 0, err
	})
	require.NoError(w.t, w.Delete(w.t.Context(), workflow))
	w.await("the end of the workflow", func(ctx context.Context) (bool, error) {
		err := w.Get(ctx, client.ObjectKeyFromObject(workflow), workflow)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

// strangersStage has an AIJob of the name of a stage's have another owner.
func strangersStage(w *world) {
	workflow := w.workflow("left")
	hash := sha256.Sum256(fmt.Appendf(nil, "%s/1/left", workflow.UID))
	stranger := &aiplatformv1alpha1.AIJob{ObjectMeta: metav1.ObjectMeta{Name: "digest-1-left-" + hex.EncodeToString(hash[:4]), Namespace: w.namespace}}
	stranger.Spec = aiplatformv1alpha1.AIJobSpec{JobType: aiplatformv1alpha1.JobInference, Image: "registry.example.com/other:1", QueueName: "nowhere"}
	require.NoError(w.t, w.Create(w.t.Context(), stranger))
	w.happens(time.Now().Add(time.Minute))
	w.awaitWorkflow(workflow, "Failed", func(s *aiplatformv1alpha1.AgentWorkflowStatus) bool {
		return s.Phase == aiplatformv1alpha1.WorkflowFailed
	})
}
