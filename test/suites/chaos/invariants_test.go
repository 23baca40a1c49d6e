package chaos

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/cloud/inventory"
)

// judge is the verdict, after which everything is taken away.
func (l *workload) judge(ctx context.Context) {
	l.verdict(ctx)
	l.removeAll(ctx)
	l.awaitNothing()
	l.logs()
}

// verdict waits until everything has come to its end without faults, and checks what must hold then.
func (l *workload) verdict(ctx context.Context) {
	if l.nodes.staysDead() {
		l.checks.add(endsWithoutNode)
		l.mustCome("the end, without a node, of ", l.unendedWithout(func(o client.Object) bool { return o == l.hindered || dependsOnInstances(o) }))
		l.took("ends without a node" + l.last)
	}
	l.nodes.revive()
	ended := l.mustCome("the end of ", l.unendedWithout(func(o client.Object) bool { return o == l.hindered }))
	l.took("ends" + l.last)
	if l.hindered != nil {
		l.checks.add(placeGivenBack)
		l.mustCome("", l.keepsPlace)
		l.unhinder(ctx)
		ended = l.mustCome("the end of ", l.unendedWithout(func(client.Object) bool { return false })) && ended
		l.took("end of the hindered")
	}
	l.checks.add(queueFree)
	l.mustCome("", l.busy)
	l.checks.add(explainsWaiting)
	l.mustCome("", l.untold)
	if ended {
		l.account(ctx)
	}
	l.watcher.keptQuota(l.queue())
	l.took("checks")
	if l.rests {
		l.writesNothing()
		l.took("rest")
	}
}

// mustCome waits for what is missing, and says whether it came.
func (l *workload) mustCome(what string, missing func(context.Context) (string, error)) bool {
	is := l.await(missing)
	if is != "" {
		l.note("waited %s for %s%s", patience, what, is)
		l.keepState()
	}
	return is == ""
}

// dependsOnInstances says whether an object may wait for the return of a node: as long as it merely does not answer, it may still run what
// must not run twice.
func dependsOnInstances(object client.Object) bool {
	switch object.(type) {
	case *spotv1alpha1.SpotInstanceJob, *spotv1alpha1.SpotInstanceVM:
		return true
	}
	return false
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

// keepsPlace says that the job that cannot start has a place in its queue, or has not had one yet.
func (l *workload) keepsPlace(ctx context.Context) (string, error) {
	job := &mlv1.TrainingJob{}
	if err := l.Get(ctx, client.ObjectKeyFromObject(l.hindered), job); err != nil {
		return "", err
	}
	if millisOfTraining(job) > 0 || !l.watcher.hasHeld(job.UID, l.queue()) {
		return "the end of a place in the queue of " + describe(job), nil
	}
	return "", nil
}

// unendedWithout names what has not come to an end, of all that is not left out.
func (l *workload) unendedWithout(leftOut func(client.Object) bool) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		if missing, err := l.settle(ctx); missing != "" || err != nil {
			return missing, err
		}
		for _, object := range l.objects {
			if leftOut(object) {
				continue
			}
			current := object.DeepCopyObject().(client.Object)
			if err := l.Get(ctx, client.ObjectKeyFromObject(object), current); err != nil {
				return "", err
			}
			if !hasEnded(current) {
				l.last = fmt.Sprintf(" (%T %s)", object, object.GetName())
				return describe(current), nil
			}
		}
		return "", nil
	}
}

func hasEnded(object client.Object) bool {
	if vm, ok := object.(*spotv1alpha1.SpotInstanceVM); ok { // it has no work, and so no instance
		return vm.Status.ReadyInstances == 0 && len(vm.Status.ProvisionedInstances) == 0 && vm.Status.ObservedGeneration == vm.Generation
	}
	return figuresOf(object).end != ""
}

// untold names an object whose conditions do not say how it ended, for the spec that it has now.
func (l *workload) untold(ctx context.Context) (string, error) {
	for _, object := range l.objects {
		current := object.DeepCopyObject().(client.Object)
		if err := l.Get(ctx, client.ObjectKeyFromObject(object), current); err != nil {
			return "", err
		}
		if f := figuresOf(current); len(f.grow) > 0 && f.grow[0] != current.GetGeneration() {
			return "a status for the newest spec of " + describe(current), nil
		}
		if !explains(current) {
			return "a condition that says how it ended of " + describe(current), nil
		}
	}
	return "", nil
}

// explains says whether a condition says how an object ended, or where it stands when it has no end.
func explains(object client.Object) bool {
	conditions := conditionsIn(object)
	end := map[string]string{
		string(mlv1.StateCompleted): reasons.ConditionComplete, string(aiplatformv1alpha1.AIJobSucceeded): reasons.ConditionComplete,
		string(mlv1.StateFailed): reasons.ConditionFailed, string(aiplatformv1alpha1.AIJobDeadLetter): reasons.ConditionFailed,
	}[figuresOf(object).end]
	if end != "" {
		return meta.IsStatusConditionTrue(conditions, end)
	}
	ready := meta.FindStatusCondition(conditions, reasons.ConditionReady)
	return ready != nil && ready.Reason != ""
}

func conditionsIn(object client.Object) []metav1.Condition {
	if job, ok := object.(*mlv1.TrainingJob); ok {
		return job.Status.Conditions
	}
	return *object.(interface{ StatusConditions() *[]metav1.Condition }).StatusConditions()
}

// writesNothing checks that a manager whose objects have all ended stops writing. What is delayed may still come.
func (l *workload) writesNothing() {
	const (
		rest  = 5 * time.Second
		limit = 30 * time.Second
	)
	l.checks.add(rests)
	l.leaving.Wait() // the end of others takes writes
	before := l.proxy.writes.Load()
	missing := l.awaitWithin(limit, func(context.Context) (string, error) {
		if l.quiet() < rest {
			return "rest", nil
		}
		return "", nil
	})
	if missing != "" {
		l.note("all has ended, and the manager went on writing, %d times in %s", l.proxy.writes.Load()-before, limit)
	}
}

// removeAll deletes the objects, checks that nothing is left of them, and then deletes the namespace and the queue. In that order, since
// Kubernetes removes what is in a namespace that is deleted, whether its owner is gone or not.
func (l *workload) removeAll(ctx context.Context) {
	for _, object := range l.objects {
		if err := l.Delete(ctx, object.DeepCopyObject().(client.Object)); err != nil {
			l.note("delete %T %s: %v", object, object.GetName(), err)
		}
	}
	l.checks.add(noChildLeft)
	l.mustCome("the end of what belonged to deleted objects: ", l.children)
	l.took("removal")
	l.delete(ctx)
}

// notOfObjects is what a namespace has that no object of the operator owns, by kind.
var notOfObjects = map[string][]string{
	"*v1.ConfigMapList": {"kube-root-ca.crt"}, "*v1.ServiceAccountList": {"default"}, "*v1.SecretList": {"gcp", "kubeadm-join"},
}

// children names what is left in the namespace of objects that are deleted, and of their instances in others.
func (l *workload) children(ctx context.Context) (string, error) {
	for _, list := range []client.ObjectList{
		&mlv1.TrainingJobList{}, &aiplatformv1alpha1.AIJobList{}, &aiplatformv1alpha1.AgentWorkflowList{}, &spotv1alpha1.SpotInstanceJobList{},
		&spotv1alpha1.SpotInstanceVMList{}, &batchv1.JobList{}, &corev1.PodList{}, &corev1.ServiceList{}, &corev1.ConfigMapList{},
		&corev1.SecretList{}, &corev1.ServiceAccountList{}, &corev1.PersistentVolumeClaimList{}, &networkingv1.NetworkPolicyList{},
		&rbacv1.RoleList{}, &rbacv1.RoleBindingList{}, &policyv1.PodDisruptionBudgetList{}, &appsv1.DeploymentList{},
	} {
		if err := l.List(ctx, list, client.InNamespace(l.namespace)); err != nil {
			return "", err
		}
		names, err := namesIn(list)
		if err != nil {
			return "", err
		}
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(notOfObjects[fmt.Sprintf("%T", list)], name) })
		if len(names) > 0 {
			return fmt.Sprintf("%T %v", list, names), nil
		}
	}
	return l.outside(ctx)
}

func namesIn(list client.ObjectList) (names []string, err error) {
	err = meta.EachListItem(list, func(object runtime.Object) error {
		names = append(names, object.(client.Object).GetName())
		return nil
	})
	return names, err
}

// instances are those of the namespace.
func (l *workload) instances() (names []string) {
	for _, i := range l.compute.Instances() {
		if owner, _ := inventory.OwnerOf(&cloud.Instance{Name: i.Name, Labels: i.Labels}); owner.VM.Namespace == l.namespace {
			names = append(names, i.Name)
		}
	}
	return names
}

// outside names what objects of the namespace left elsewhere: instances, their nodes, and the tokens with which these joined.
func (l *workload) outside(ctx context.Context) (string, error) {
	if instances := l.instances(); len(instances) > 0 {
		return fmt.Sprintf("instances %v", instances), nil
	}
	of := client.MatchingLabels{spotv1alpha1.LabelSpotInstanceVMNamespace: l.namespace}
	for _, list := range []client.ObjectList{&corev1.NodeList{}, &corev1.SecretList{}} {
		if err := l.List(ctx, list, of); err != nil {
			return "", err
		}
		if names, err := namesIn(list); err != nil || len(names) > 0 {
			return fmt.Sprintf("%T %v of instances", list, names), err
		}
	}
	return "", nil
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

// awaitNothing waits until nothing is left of a namespace that was deleted.
func (l *workload) awaitNothing() {
	l.checks.add(nothingLeft)
	l.checks.add(noInstanceLeft)
	l.mustCome("the end of ", l.left)
}

// left names what is left of the namespace.
func (l *workload) left(ctx context.Context) (string, error) {
	namespace := &corev1.Namespace{}
	if err := l.Get(ctx, types.NamespacedName{Name: l.namespace}, namespace); !apierrors.IsNotFound(err) {
		if err != nil {
			return "", err
		}
		l.releaseForgotten(ctx)
		rest, _ := l.children(ctx)
		return fmt.Sprintf("namespace %s: %s; %v", l.namespace, rest, namespace.Status.Conditions), nil
	}
	queue := &aiplatformv1alpha1.AIJobQueue{}
	if err := l.Get(ctx, types.NamespacedName{Name: l.queue()}, queue); !apierrors.IsNotFound(err) {
		return "AIJobQueue " + l.queue(), err
	}
	missing, err := l.outside(ctx)
	if missing != "" || err != nil {
		return missing + " of namespace " + l.namespace, err
	}
	return l.series(ctx)
}

// releaseForgotten lets pods go as an administrator does, from which the Job controller of Kubernetes has not taken its finalizer for long. One
// that is deleted before it has heard of its creation keeps it from looking at the Job for five minutes, and then until something happens
// to the Job; a namespace that is deleted waits for its pods before anything happens to it.
func (l *workload) releaseForgotten(ctx context.Context) {
	var pods corev1.PodList
	if err := l.List(ctx, &pods, client.InNamespace(l.namespace)); err != nil {
		return
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		isKept := slices.Equal(pod.Finalizers, []string{batchv1.JobTrackingFinalizer})
		if pod.DeletionTimestamp != nil && isKept && time.Since(pod.DeletionTimestamp.Time) > patience/4 {
			l.t.Logf("the Job controller forgot pod %s/%s", l.namespace, pod.Name)
			_ = l.Patch(ctx, pod, client.RawPatch(types.JSONPatchType, []byte(`[{"op": "remove", "path": "/metadata/finalizers"}]`)))
		}
	}
}

// series names a metric that still describes the namespace. A manager that is not there is asked when it is.
func (l *workload) series(ctx context.Context) (string, error) {
	l.checks.add(noSeriesLeft)
	text, err := metricsOf(ctx, "http://"+l.metrics+"/metrics")
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, `namespace="`+l.namespace+`"`) {
			return "series " + line, nil
		}
	}
	return "", err
}

// logs looks for panics and for secrets in what the managers logged since it was last called.
func (w *world) logs() {
	w.checks.add(noPanic)
	files, _ := filepath.Glob(filepath.Join(w.folder, "manager*.log"))
	for _, file := range files {
		text, err := w.unread(file)
		if err != nil {
			w.note("%v", err)
			continue
		}
		for line := range strings.Lines(text) {
			if isCrash(line) {
				w.note("%s: %s", filepath.Base(file), line)
			}
		}
		if told := secretsIn(text); told != "" {
			w.note("%s tells %s", filepath.Base(file), told)
		}
	}
}

// unread are the whole lines of a log file that were not read yet.
func (w *world) unread(name string) (string, error) {
	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.NewSectionReader(file, w.read[name], 1<<40))
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	w.read[name] += int64(len(text))
	return string(text), err
}

func isCrash(line string) bool {
	return strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") || strings.Contains(line, "Observed a panic") ||
		strings.Contains(line, "DATA RACE")
}
