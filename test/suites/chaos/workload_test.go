package chaos

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/fakes/fakegce"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

const (
	joinToken = "abcdef.0123456789abcdef"

	// queueCPU is the quota of each queue.
	queueCPU = 2
)

// What users and the provider do.
const (
	twoManagers      = "two managers at once"
	cloudRefuses     = "call of the provider refused with 503"
	cloudLosesAnswer = "answer of the provider lost"
	cloudTwice       = "call of the provider done twice"
	cloudPreempts    = "instance taken back by the provider"
	nodeNoticed      = "notice that a node is taken back"
	userSuspends     = "job suspended or resumed"
	userScales       = "job scaled"
	userRecreates    = "job deleted and created again"
	userCancels      = "job cancelled"
	userHoldsQueue   = "queue held or released"
	userTakesSecret  = "credentials of the provider deleted"
	userEdits        = "spec of what others use edited"
	userRaisesQuota  = "quota of a queue raised"
	userHinders      = "job whose pods no quota allows"
	userLeaves       = "namespace deleted while all is at work"
	clockJumps       = "clock of the manager jumps"
)

var userFaults = []string{
	twoManagers, cloudRefuses, cloudLosesAnswer, cloudTwice, cloudPreempts, userSuspends, userScales, userRecreates, userCancels, userHoldsQueue,
	userTakesSecret, userEdits, userRaisesQuota, userHinders, userLeaves, nodeNoticed,
}

// workload is what users do in the time of one seed, in a namespace of its own.
type workload struct {
	*world

	options

	seed      uint64
	sources   map[string]*rand.Rand
	namespace string
	objects   []client.Object   // as they are created
	hindered  *mlv1.TrainingJob // is one whose pods cannot be created before all else has ended; nil in most seeds

	laps []string // how long each part took
	lap  time.Time
	last string // the object whose end was awaited last

	acting    sync.Mutex
	deleted   map[string]bool    // by users, and not created again yet
	cancelled map[types.UID]bool // by users
}

// options are drawn before anything happens, so that they are the same whenever a seed is run.
type options struct {
	hinders   bool // there is a job whose pods no quota allows
	nodeStays bool // a node dies that does not return before all else has ended
	slow      bool // programs that work together run long enough for the count of each failure to be settled
	leaves    bool // the namespace is deleted while all is at work
	rests     bool // it is awaited that the manager writes nothing more
}

func optionsOf(seed uint64) options {
	random := source(seed, "options")
	drawn := func(probability float64) bool { return random.Float64() < probability }
	return options{hinders: drawn(0.3), nodeStays: drawn(0.15), slow: drawn(0.15), leaves: drawn(0.2), rests: drawn(0.4)}
}

// source is the generator of one kind of decisions. Each kind has its own, so that what happens to one thing does not depend on how often
// others were asked for.
func source(seed uint64, name string) *rand.Rand {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(name))
	return rand.New(rand.NewPCG(seed, hash.Sum64()))
}

func newWorkload(w *world, seed uint64) *workload {
	w.watcher.forget()
	w.nodes.history.forget()
	return &workload{
		world: w, options: optionsOf(seed), seed: seed, sources: map[string]*rand.Rand{}, deleted: map[string]bool{},
		cancelled: map[types.UID]bool{}, namespace: fmt.Sprintf("seed-%d-%d", seed, time.Now().UnixNano()%1e6), lap: time.Now(),
	}
}

// took notes how long a part of the seed took.
func (l *workload) took(part string) {
	l.laps = append(l.laps, fmt.Sprintf("%s %.0fs", part, time.Since(l.lap).Seconds()))
	l.lap = time.Now()
}

// random is the generator of a kind of decisions of users and of the provider.
func (l *workload) random(kind string) *rand.Rand {
	if l.sources[kind] == nil {
		l.sources[kind] = source(l.seed, kind)
	}
	return l.sources[kind]
}

func (l *workload) queue() string { return l.namespace }

// create creates everything.
func (l *workload) create(ctx context.Context) error {
	first := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: l.namespace, Labels: map[string]string{spotv1alpha1.LabelSpotInstances: spotv1alpha1.SpotInstancesAllowed},
		}},
		l.credentials(),
		// Nothing but the job that is hindered asks for this.
		&corev1.ResourceQuota{ObjectMeta: l.named("none"), Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			corev1.ResourceRequestsEphemeralStorage: resource.MustParse("1"),
		}}},
		&corev1.Secret{ObjectMeta: l.named("kubeadm-join"), StringData: map[string]string{
			"token": joinToken, "ca-cert-hash": "sha256:" + fmt.Sprintf("%064d", 7), "control-plane-endpoint": "10.0.0.1:6443",
		}},
		&aiplatformv1alpha1.AIJobQueue{ObjectMeta: metav1.ObjectMeta{Name: l.queue()}, Spec: aiplatformv1alpha1.AIJobQueueSpec{
			PreemptionPolicy: aiplatformv1alpha1.PreemptLowerPriority,
			Quotas:           &aiplatformv1alpha1.ResourceLimits{CPU: ptr.To(resource.MustParse(fmt.Sprint(queueCPU)))},
		}},
		l.agent("first"), l.agent("second"),
	}
	for _, object := range first {
		if err := l.insist(ctx, object); err != nil {
			return err
		}
	}
	l.objects = append(l.objects,
		l.training("plain", 2).ToCreate(), l.training("elastic", 2).Elastic(1, 3).ToCreate(), l.training("queued", 2).Spec(func(s *mlv1.TrainingJobSpec) {
			s.Scheduling = &mlv1.Scheduling{QueueName: l.queue()}
		}).ToCreate(),
		l.aiJob("alone", "").ToCreate(), l.aiJob("low", l.queue()).Priority(10).ToCreate(), l.aiJob("high", l.queue()).Priority(90).ToCreate(),
		l.aiJob("gang", l.queue()).Gang(2).ToCreate(), l.workflow(), l.spotVM(), l.spotJob(),
	)
	if l.hinders {
		l.hindered = l.training("hindered", 3).Spec(func(s *mlv1.TrainingJobSpec) {
			s.Scheduling = &mlv1.Scheduling{QueueName: l.queue()}
			s.Resources.Requests[corev1.ResourceEphemeralStorage] = resource.MustParse("1Gi")
		}).ToCreate()
		l.objects = append(l.objects, l.hindered)
		l.faults.add(userHinders)
	}
	l.random("objects").Shuffle(len(l.objects), func(i, j int) { l.objects[i], l.objects[j] = l.objects[j], l.objects[i] })
	return nil
}

// insist creates an object that the others need.
func (l *workload) insist(ctx context.Context, object client.Object) error {
	var err error
	for range 50 {
		if err = client.IgnoreAlreadyExists(l.Create(ctx, object.DeepCopyObject().(client.Object))); err == nil {
			return nil
		}
		l.pause(200 * time.Millisecond)
	}
	return fmt.Errorf("create %T %s: %w", object, object.GetName(), err)
}

// add creates an object as a user does, who tries again when the API server refuses.
func (l *workload) add(ctx context.Context, object client.Object) {
	if err := l.insist(ctx, object); err != nil {
		l.note("%v", err)
	}
}

func (l *workload) named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: l.namespace}
}

func (l *workload) credentials() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: l.named("gcp"), StringData: map[string]string{"credentials.json": string(l.compute.CredentialsJSON())}}
}

func (l *workload) training(name string, workers int32) *builders.TrainingJobBuilder {
	return builders.TrainingJob(name).Namespace(l.namespace).Workers(workers).BackoffLimit(1 + l.random("objects").Int32N(5)).Spec(func(s *mlv1.TrainingJobSpec) {
		s.Image = "registry.example.com/train:1"
		s.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m")}}
		s.Env = []corev1.EnvVar{{Name: "PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "gcp"}, Key: "credentials.json",
		}}}}
	})
}

func (l *workload) aiJob(name, queue string) *builders.AIJobBuilder {
	return builders.AIJob(name).Namespace(l.namespace).Queue(queue).Request(corev1.ResourceCPU, "500m").Retries(1+l.random("objects").Int32N(4), time.Second)
}

func (l *workload) agent(name string) *aiplatformv1alpha1.Agent {
	return &aiplatformv1alpha1.Agent{ObjectMeta: l.named(name), Spec: aiplatformv1alpha1.AgentSpec{
		Image: "registry.example.com/agent:1", RetryPolicy: aiplatformv1alpha1.RetryPolicy{InitialBackoff: &metav1.Duration{Duration: time.Second}},
		Resources: &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}},
	}}
}

func (l *workload) workflow() *aiplatformv1alpha1.AgentWorkflow {
	return &aiplatformv1alpha1.AgentWorkflow{ObjectMeta: l.named("workflow"), Spec: aiplatformv1alpha1.AgentWorkflowSpec{
		Stages: []aiplatformv1alpha1.Stage{
			{Name: "one", Agent: "first"}, {Name: "two", Agent: "second", DependsOn: []aiplatformv1alpha1.StageName{"one"}},
		},
	}}
}

func (l *workload) spotVM() *spotv1alpha1.SpotInstanceVM {
	return &spotv1alpha1.SpotInstanceVM{ObjectMeta: l.named("vm"), Spec: spotv1alpha1.SpotInstanceVMSpec{
		VMImage: "projects/p/global/images/family/node",
		GCP: spotv1alpha1.GCP{
			Project: l.compute.Project(), Zone: "us-central1-a", MachineType: "n1-standard-4", CredentialsSecretRef: &spotv1alpha1.SecretReference{Name: "gcp"},
		},
		KubeadmJoinConfig: spotv1alpha1.KubeadmJoinConfig{TokenSecretRef: "kubeadm-join"},
		IdleTimeout:       &metav1.Duration{}, MaxInstances: 4,
	}}
}

func (l *workload) spotJob() *spotv1alpha1.SpotInstanceJob {
	return builders.SpotInstanceJob("spot").Namespace(l.namespace).Replicas(2).On("vm").Template(func(s *batchv1.JobSpec) {
		// More than the other nodes have, so that an instance is needed.
		s.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3500m")}
	}).ToCreate()
}

// live creates the objects and does what users do, for as long as there are faults.
func (l *workload) live(ctx context.Context, length time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	end := time.Now().Add(length)
	waiting := l.objects
	random := l.random("users")
	for ctx.Err() == nil && (time.Now().Before(end) || len(waiting) > 0) {
		if len(waiting) > 0 && random.Float64() < 0.5 {
			l.add(ctx, waiting[0].DeepCopyObject().(client.Object))
			waiting = waiting[1:]
		} else {
			l.act(ctx, random.IntN(19))
		}
		l.pause(time.Duration(100+random.Int64N(400)) * time.Millisecond)
	}
}

// act does one thing. What does not exist yet is left alone.
func (l *workload) act(ctx context.Context, what int) {
	switch what {
	case 0, 1:
		l.changeTraining(ctx, userSuspends, []string{"plain", "elastic", "queued"}, func(job *mlv1.TrainingJob) {
			job.Spec.Suspend = ptr.To(!ptr.Deref(job.Spec.Suspend, false))
		})
	case 2, 3:
		workers := 1 + l.random(userScales).Int32N(3)
		l.changeTraining(ctx, userScales, []string{"elastic"}, func(job *mlv1.TrainingJob) { job.Spec.NumWorkers = workers })
	case 4:
		l.recreate(ctx, l.objects[l.random(userRecreates).IntN(len(l.objects))])
	case 5:
		if l.random(userCancels).Float64() < 0.3 {
			l.cancel(ctx, "low")
		}
	case 6:
		queue := &aiplatformv1alpha1.AIJobQueue{ObjectMeta: metav1.ObjectMeta{Name: l.queue()}}
		if l.patch(ctx, queue, func() { queue.Spec.Suspend = ptr.To(!ptr.Deref(queue.Spec.Suspend, false)) }) {
			l.faults.add(userHoldsQueue)
		}
	case 7:
		if l.random(twoManagers).Float64() < 0.3 {
			l.twoManagers()
		}
	case 8:
		if secret := l.credentials(); l.random(userTakesSecret).Float64() < 0.5 && l.Delete(ctx, secret) == nil {
			l.isDeleted(secret, true)
			l.faults.add(userTakesSecret)
		}
	case 9:
		if wantsClock() {
			l.jump(time.Duration(l.random(clockJumps).Int64N(2*int64(farthestJump))) - farthestJump)
			l.faults.add(clockJumps)
		}
	case 10, 11:
		l.edit(ctx, l.random(userEdits))
	case 12:
		l.raiseQuota(ctx)
	default:
		l.cloud()
	}
}

// edit changes what may change while it is at work, and decides nothing about the end.
func (l *workload) edit(ctx context.Context, random *rand.Rand) {
	n := random.Int32N(3)
	var object client.Object
	var change func()
	switch random.IntN(4) {
	case 0:
		workflow := &aiplatformv1alpha1.AgentWorkflow{ObjectMeta: l.named("workflow")}
		object, change = workflow, func() { workflow.Spec.Priority = ptr.To(40 + n) }
	case 1:
		agent := &aiplatformv1alpha1.Agent{ObjectMeta: l.named("second")}
		object, change = agent, func() { agent.Spec.Description = fmt.Sprintf("edited %d", n) }
	case 2:
		vm := &spotv1alpha1.SpotInstanceVM{ObjectMeta: l.named("vm")}
		object, change = vm, func() { vm.Spec.MaxInstances = 3 + n }
	default:
		job := &spotv1alpha1.SpotInstanceJob{ObjectMeta: l.named("spot")}
		object, change = job, func() {
			metav1.SetMetaDataAnnotation(&job.Spec.JobTemplate.Spec.Template.ObjectMeta, "edited", fmt.Sprint(n))
		}
	}
	if l.patch(ctx, object, change) {
		l.faults.add(userEdits)
	}
}

// raiseQuota raises that of the queue once. It is never lowered: jobs that hold more keep it.
func (l *workload) raiseQuota(ctx context.Context) {
	if l.random(userRaisesQuota).Float64() >= 0.3 {
		return
	}
	queue := &aiplatformv1alpha1.AIJobQueue{ObjectMeta: metav1.ObjectMeta{Name: l.queue()}}
	if l.patch(ctx, queue, func() { queue.Spec.Quotas.CPU = ptr.To(resource.MustParse(fmt.Sprint(queueCPU + 1))) }) {
		l.faults.add(userRaisesQuota)
	}
}

// farthestJump is less than pods have to end: a manager whose clock is further ahead takes a kubelet for dead that is not, as Kubernetes' own
// controllers do. And twice as far is less than the time within which the loss of a node must be seen.
const farthestJump = 20 * time.Second

func (l *workload) jump(to time.Duration) {
	if err := l.clock.jump(to); err != nil {
		l.note("%v", err)
	}
}

// cloud lets something go wrong at the provider.
func (l *workload) cloud() {
	fault := map[string]fakegce.Fault{
		cloudRefuses:     {Times: 2, Status: 503, Reason: "backendError", Message: "Backend Error"},
		cloudLosesAnswer: {Method: "compute.instances.insert", Times: 1, LoseAnswer: true},
		cloudTwice:       {Method: "compute.instances.insert", Times: 1, Twice: true},
	}
	random := l.random("provider")
	switch kind := []string{cloudRefuses, cloudLosesAnswer, cloudTwice, cloudPreempts}[random.IntN(4)]; kind {
	case cloudPreempts:
		if instances := l.compute.Instances(); len(instances) > 0 && l.compute.Preempt(instances[random.IntN(len(instances))].Name) == nil {
			l.faults.add(kind)
		}
	default:
		l.faults.add(kind)
		l.compute.Inject(fault[kind])
	}
}

func (l *workload) changeTraining(ctx context.Context, kind string, of []string, change func(*mlv1.TrainingJob)) {
	job := &mlv1.TrainingJob{ObjectMeta: l.named(of[l.random(kind+" of").IntN(len(of))])}
	if l.patch(ctx, job, func() { change(job) }) {
		l.faults.add(kind)
	}
}

func (l *workload) cancel(ctx context.Context, name string) {
	job := &aiplatformv1alpha1.AIJob{ObjectMeta: l.named(name)}
	if l.patch(ctx, job, func() { job.Spec.Cancel = ptr.To(true) }) {
		l.faults.add(userCancels)
		l.acting.Lock()
		defer l.acting.Unlock()
		l.cancelled[job.UID] = true
	}
}

// patch changes an object as a user does, and says whether it could.
func (l *workload) patch(ctx context.Context, object client.Object, change func()) bool {
	if l.Get(ctx, client.ObjectKeyFromObject(object), object) != nil {
		return false
	}
	before := object.DeepCopyObject().(client.Object)
	change()
	return l.Patch(ctx, object, client.MergeFrom(before)) == nil
}

// recreate deletes an object, and has one of the same name created as soon as it is gone.
func (l *workload) recreate(ctx context.Context, object client.Object) {
	current := object.DeepCopyObject().(client.Object)
	if l.Get(ctx, client.ObjectKeyFromObject(object), current) != nil {
		return
	}
	l.isDeleted(object, true)
	if l.Delete(ctx, current) != nil {
		return
	}
	l.faults.add(userRecreates)
	go func() {
		for ctx.Err() == nil { // what takes longer to end is created when the faults are over
			if l.Create(ctx, object.DeepCopyObject().(client.Object)) == nil {
				l.isDeleted(object, false)
				return
			}
			l.pause(100 * time.Millisecond)
		}
	}()
}

// isDeleted notes that a user deleted an object, or created it again.
func (l *workload) isDeleted(object client.Object, is bool) {
	l.acting.Lock()
	defer l.acting.Unlock()
	l.deleted[fmt.Sprintf("%T %s", object, object.GetName())] = is
}

// restore creates an object that is missing. Only a user may have deleted it.
func (l *workload) restore(ctx context.Context, object client.Object) error {
	l.acting.Lock()
	by := l.deleted[fmt.Sprintf("%T %s", object, object.GetName())]
	l.acting.Unlock()
	if !by {
		l.note("%T %s/%s is gone, and no user deleted it", object, l.namespace, object.GetName())
	}
	err := l.Create(ctx, object.DeepCopyObject().(client.Object))
	if err == nil {
		l.isDeleted(object, false)
	}
	return err
}

// settle takes back what keeps objects from their end: they are resumed, the queue is released, and what is missing is created.
func (l *workload) settle(ctx context.Context) (string, error) {
	queue := &aiplatformv1alpha1.AIJobQueue{}
	if err := l.Get(ctx, types.NamespacedName{Name: l.queue()}, queue); err != nil {
		return "", err
	}
	if ptr.Deref(queue.Spec.Suspend, false) && !l.patch(ctx, queue, func() { queue.Spec.Suspend = nil }) {
		return "the queue to be released", nil
	}
	// That of the credentials stays for as long as instances need it. A user who has taken it away then gives another.
	for _, object := range append(slices.Clone(l.objects), l.credentials()) {
		current := object.DeepCopyObject().(client.Object)
		err := l.Get(ctx, client.ObjectKeyFromObject(object), current)
		switch _, isSecret := object.(*corev1.Secret); {
		case apierrors.IsNotFound(err):
			err = l.restore(ctx, object)
		case err == nil && current.GetDeletionTimestamp() != nil && !isSecret:
			return fmt.Sprintf("the end of %T %s", object, object.GetName()), nil
		}
		if err != nil {
			return "", err
		}
		if job, ok := current.(*mlv1.TrainingJob); ok && ptr.Deref(job.Spec.Suspend, false) {
			if !l.patch(ctx, job, func() { job.Spec.Suspend = ptr.To(false) }) {
				return "TrainingJob " + job.Name + " to be resumed", nil
			}
		}
	}
	return "", nil
}

// unhinder lets the job start whose pods no quota allowed. A change of its spec ends the pause before it is queued again.
func (l *workload) unhinder(ctx context.Context) {
	if err := l.Delete(ctx, &corev1.ResourceQuota{ObjectMeta: l.named("none")}); err != nil {
		l.note("%v", err)
	}
	job := l.hindered.DeepCopy()
	if !l.patch(ctx, job, func() { job.Spec.TTLSecondsAfterFinished = ptr.To[int32](3600) }) {
		l.note("TrainingJob %s cannot be changed", job.Name)
	}
	l.hindered = nil
}

// leave deletes all while faults go on and everything is at work, instances too if there are some soon. The provider deletes none of these
// before the manager has forgotten what it knew, and can no longer learn the credentials from a Secret that stays.
func (l *workload) leave(ctx context.Context) {
	l.faults.add(userLeaves)
	l.awaitWithin(10*time.Second, func(context.Context) (string, error) {
		if len(l.instances()) == 0 {
			return "an instance", nil
		}
		return "", nil
	})
	l.took(fmt.Sprintf("%d instances", len(l.instances())))
	again := l.compute.Inject(fakegce.Fault{Method: "compute.instances.delete", Status: 503, Reason: "backendError", Message: "Backend Error"})
	l.delete(ctx)
	l.awaitWithin(20*time.Second, func(ctx context.Context) (string, error) { // Kubernetes waits five seconds first
		secret := l.credentials()
		if err := l.Get(ctx, client.ObjectKeyFromObject(secret), secret); err == nil && secret.DeletionTimestamp == nil {
			return "the deletion of the Secret", nil
		}
		return "", nil
	})
	l.killManager()
	again()
	l.pause(3 * time.Second)
}
