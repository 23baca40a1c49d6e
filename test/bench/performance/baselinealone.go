package performance

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/test/bench/baseline"
)

const (
	// aloneShare is the share of the jobs whose requests are sent alone, aloneClients how many clients send them.
	aloneShare   = 0.1
	aloneClients = 12
)

// pattern is what a job of a class was like that has been run.
type pattern struct {
	pod *corev1.Pod
	// scheduled and succeeded are patches of its status.
	scheduled, succeeded []byte
}

// requestsAlone measures how long those requests take that a job with a pod and two steps of its status cannot do without: its user's,
// the scheduler's and the kubelet's, its pod, and the steps to Scheduled and Succeeded. Nothing watches, decides, or waits for anything
// but the API server. It comes after the jobs have been run, whose objects are the patterns.
func (c *cluster) requestsAlone(ctx context.Context, jobs []baseline.Job) time.Duration {
	l := c.newLoad(namespace)
	patterns := map[string]*pattern{}
	for _, j := range jobs {
		if patterns[j.Class.Name] == nil {
			patterns[j.Class.Name] = c.patternOf(ctx, j.Name)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(aloneClients)
	start := time.Now()
	for _, j := range jobs {
		group.Go(func() error {
			like := patterns[j.Class.Name]
			j.Name = "alone-" + j.Name
			if err := l.liveAlone(ctx, j, like); err != nil {
				return fmt.Errorf("job %s: %w", j.Name, err)
			}
			return nil
		})
	}
	require.NoError(c, group.Wait())
	return time.Since(start)
}

func (c *cluster) patternOf(ctx context.Context, name string) *pattern {
	var job aiplatformv1alpha1.AIJob
	require.NoError(c, c.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &job))
	var pods corev1.PodList
	byJob := client.MatchingLabels{aiplatformv1alpha1.LabelAIJob: name}
	require.NoError(c, c.client.List(ctx, &pods, client.InNamespace(namespace), byJob))
	require.Len(c, pods.Items, 1, "of AIJob %s", name)
	pod := &pods.Items[0]
	spec := *pod.Spec.DeepCopy()
	spec.NodeName = ""
	is := &pattern{pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Labels: pod.Labels, Annotations: pod.Annotations, OwnerReferences: pod.OwnerReferences,
		},
		Spec: spec,
	}}
	encode := func(status *aiplatformv1alpha1.AIJobStatus) []byte {
		text, err := json.Marshal(map[string]any{"status": status})
		require.NoError(c, err)
		return text
	}
	is.succeeded = encode(&job.Status)
	before := job.Status.DeepCopy()
	before.Phase, before.Reason, before.CompletionTime, before.ExitCode = aiplatformv1alpha1.AIJobScheduled, reasons.AdmittedByQueue, nil, nil
	before.Assignments = []aiplatformv1alpha1.NodeAssignment{{NodeName: pod.Spec.NodeName, Members: 1}}
	meta.RemoveStatusCondition(&before.Conditions, reasons.ConditionComplete)
	is.scheduled = encode(before)
	return is
}

// liveAlone sends all requests of a job, one after the other.
func (l *queueLoad) liveAlone(ctx context.Context, j baseline.Job, like *pattern) error {
	if err := l.post(ctx, j); err != nil {
		return fmt.Errorf("create it: %w", err)
	}
	if err := l.patchStatus(ctx, j.Name, like.scheduled); err != nil {
		return err
	}
	pod := like.pod.DeepCopy()
	pod.Name = j.Name
	node, err := nodeOf(pod)
	if err != nil {
		return err
	}
	if pod, err = l.typed.CoreV1().Pods(l.namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create its pod: %w", err)
	}
	began, err := l.run(ctx, pod, node)
	if err != nil {
		return err
	}
	if err := l.succeed(ctx, pod, began); err != nil {
		return err
	}
	return l.patchStatus(ctx, j.Name, like.succeeded)
}

func (l *queueLoad) patchStatus(ctx context.Context, name string, patch []byte) error {
	err := l.jobsAPI.Patch(types.MergePatchType).Namespace(l.namespace).Resource("aijobs").Name(name).SubResource("status").Body(patch).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("write its status: %w", err)
	}
	return nil
}
