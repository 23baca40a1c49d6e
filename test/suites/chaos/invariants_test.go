package chaos

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// judge waits until everything has come to its end without faults, checks what must hold then, and takes everything away.
func (l *workload) judge(ctx context.Context) {
	if missing := l.await(l.unended); missing != "" {
		l.note("waited %s for the end of %s", patience, missing)
	}
	if l.hindered != nil {
		l.checks.add(placeGivenBack)
		if missing := l.await(l.keepsPlace); missing != "" {
			l.note("waited %s for %s", patience, missing)
		}
		l.unhinder(ctx)
		if missing := l.await(l.unended); missing != "" {
			l.note("waited %s for the end of %s", patience, missing)
		}
	}
	l.checks.addN(endsExplained, len(l.objects))
	for _, object := range l.objects {
		l.explains(ctx, object)
	}
	l.checks.add(queueFree)
	if missing := l.await(l.busy); missing != "" {
		l.note("waited %s for %s", patience, missing)
	}
	l.counts(ctx)
	l.watcher.keptQuota(l.queue())
	l.writesNothing()
	l.removeAll(ctx)
	l.logs()
}

// busy says what a queue holds though its jobs have ended.
func (l *workload) busy(ctx context.Context) (string, error) {
	queue := &aiplatformv1alpha1.AIJobQueue{}
	if err := l.Get(ctx, types.NamespacedName{Name: l.queue()}, queue); err != nil {
		return "", err
	}
	s, none := queue.Status, aiplatformv1alpha1.ResourceUsage{}
	if s.Depth > 0 || s.Running > 0 || s.OldestQueuedTime != nil || ptr.Deref(s.Usage, none) != none {
		return "a free " + describe(queue), nil
	}
	return "", nil
}

// keepsPlace says that the job that cannot start has a place in its queue.
func (l *workload) keepsPlace(ctx context.Context) (string, error) {
	job := &mlv1.TrainingJob{}
	if err := l.Get(ctx, client.ObjectKeyFromObject(l.hindered), job); err != nil {
		return "", err
	}
	if millisOfTraining(job) > 0 {
		return "the end of a place in the queue of " + describe(job), nil
	}
	return "", nil
}

// unended names what has not come to an end that its spec explains.
func (l *workload) unended(ctx context.Context) (string, error) {
	if missing, err := l.settle(ctx); missing != "" || err != nil {
		return missing, err
	}
	for _, object := range l.objects {
		if object == l.hindered {
			continue
		}
		current := object.DeepCopyObject().(client.Object)
		if err := l.Get(ctx, client.ObjectKeyFromObject(object), current); err != nil {
			return "", err
		}
		if !hasEnded(current) {
			return describe(current), nil
		}
	}
	return "", nil
}

func hasEnded(object client.Object) bool {
	if vm, ok := object.(*spotv1alpha1.SpotInstanceVM); ok { // it has no work, and so no instance
		return vm.Status.ReadyInstances == 0 && len(vm.Status.ProvisionedInstances) == 0 && vm.Status.ObservedGeneration == vm.Generation
	}
	return figuresOf(object).end != ""
}

// explains checks that the conditions of an object say how it ended.
func (l *workload) explains(ctx context.Context, object client.Object) {
	current := object.DeepCopyObject().(client.Object)
	if l.Get(ctx, client.ObjectKeyFromObject(object), current) != nil {
		return
	}
	l.checks.add(explainsWaiting)
	for _, condition := range conditionsIn(current) {
		if condition.Reason != "" {
			return
		}
	}
	l.note("no condition says where it stands: %s", describe(current))
}

func conditionsIn(object client.Object) []metav1.Condition {
	if job, ok := object.(*mlv1.TrainingJob); ok {
		return job.Status.Conditions
	}
	return *object.(interface{ StatusConditions() *[]metav1.Condition }).StatusConditions()
}

// writesNothing checks that a manager whose objects have all ended writes none.
func (l *workload) writesNothing() {
	l.checks.add(rests)
	l.pause(2 * time.Second) // what is delayed
	before := l.proxy.writes.Load()
	l.pause(5 * time.Second)
	if n := l.proxy.writes.Load() - before; n > 0 {
		l.note("all has ended, and the manager wrote %d times in five seconds", n)
	}
}

// removeAll deletes the namespace and the queue, and checks that nothing is left of them.
func (l *workload) removeAll(ctx context.Context) {
	l.delete(ctx)
	l.awaitNothing()
}

func (l *workload) delete(ctx context.Context) {
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.namespace}}, &aiplatformv1alpha1.AIJobQueue{ObjectMeta: metav1.ObjectMeta{Name: l.queue()}},
	} {
		if err := l.Delete(ctx, object); err != nil {
			l.note("delete %s: %v", object.GetName(), err)
		}
	}
}

func (l *workload) awaitNothing() {
	l.checks.add(nothingLeft)
	l.checks.add(noInstanceLeft)
	if missing := l.await(l.left); missing != "" {
		l.note("waited %s for the end of %s", patience, missing)
	}
}

// left names what is left of the namespace.
func (l *workload) left(ctx context.Context) (string, error) {
	namespace := &corev1.Namespace{}
	if err := l.Get(ctx, types.NamespacedName{Name: l.namespace}, namespace); !apierrors.IsNotFound(err) {
		if err != nil {
			return "", err
		}
		text := fmt.Sprintf("namespace %s: %v", l.namespace, namespace.Status.Conditions)
		for _, list := range []client.ObjectList{
			&mlv1.TrainingJobList{}, &aiplatformv1alpha1.AIJobList{}, &aiplatformv1alpha1.AgentWorkflowList{}, &spotv1alpha1.SpotInstanceJobList{},
			&spotv1alpha1.SpotInstanceVMList{}, &batchv1.JobList{}, &corev1.PodList{},
		} {
			if l.List(ctx, list, client.InNamespace(l.namespace)) == nil {
				text += fmt.Sprintf("; %T %d", list, meta.LenList(list))
			}
		}
		return text, nil
	}
	if instances := l.compute.Instances(); len(instances) > 0 {
		return fmt.Sprintf("instances %v", instances), nil
	}
	var nodes corev1.NodeList
	if err := l.List(ctx, &nodes); err != nil {
		return "", err
	}
	if len(nodes.Items) > steadyNodes {
		return fmt.Sprintf("%d nodes of instances", len(nodes.Items)-steadyNodes), nil
	}
	return "", nil
}

// logs looks for panics and for secrets in what the managers logged.
func (w *world) logs() {
	w.checks.add(noPanic)
	files, _ := filepath.Glob(filepath.Join(w.folder, "manager*.log"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			w.note("%v", err)
			continue
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "panic:") || strings.Contains(line, "Observed a panic") || strings.Contains(line, "DATA RACE") {
				w.note("%s: %s", filepath.Base(file), line)
			}
		}
		if told := secretsIn(string(text)); told != "" {
			w.note("%s tells %s", filepath.Base(file), told)
		}
	}
}
