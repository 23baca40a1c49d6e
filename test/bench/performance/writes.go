package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

const (
	// lifeFigures is how many different figures the workers of a job report in its life.
	lifeFigures = 5

	// resync is the interval of looking at all objects again while unchanged jobs are watched, for unchanged.
	resync    = 2 * time.Second
	unchanged = 20 * time.Second
)

// lifeVariant is a condition under which the writes of a life are counted.
type lifeVariant struct {
	name    string
	policy  bool
	figures bool
}

// life is what was counted under it.
type life struct {
	lifeVariant

	jobs       int
	writes     map[write]int
	refused    int
	newAnswers int64
	// resyncWrites were sent, and resyncLooks jobs looked at, by a manager that was restarted beside finished and
	// running jobs and looked at all objects every few seconds.
	resyncWrites int
	resyncLooks  float64
}

func measureWrites(ctx context.Context, s settings) ([]life, error) {
	var lives []life
	for _, variant := range []lifeVariant{
		{name: "as installed", policy: true},
		{name: "without the admission policy"},
		{name: fmt.Sprintf("as installed, %d new figures per job", lifeFigures), policy: true, figures: true},
	} {
		say("writes of %d jobs, %s", s.lifeJobs, variant.name)
		counted, err := measureLife(ctx, s, variant)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", variant.name, err)
		}
		lives = append(lives, counted)
	}
	return lives, nil
}

func measureLife(ctx context.Context, s settings, variant lifeVariant) (life, error) {
	counted := life{lifeVariant: variant, jobs: s.lifeJobs}
	pods := podLife{
		running:  [2]time.Duration{500 * time.Millisecond, 3 * time.Second},
		ending:   [2]time.Duration{10 * time.Second, 11 * time.Second},
		loopback: variant.figures,
	}
	c, err := startCluster(ctx, s, clusterOptions{policy: variant.policy, audit: true, pods: pods})
	defer c.stop()
	if err != nil {
		return counted, err
	}
	arguments := []string{"--progress-interval=1s"}
	m, err := c.startManager(ctx, arguments...)
	if err != nil {
		return counted, err
	}
	defer func() { m.stop() }()

	if err := makeVolumes(ctx, c.client, 2*s.lifeJobs); err != nil {
		return counted, err
	}
	workers, err := createLives(ctx, c, "ends", variant)
	defer stopAll(workers)
	if err != nil {
		return counted, err
	}
	if err := m.awaitState(ctx, mlv1.StateCompleted, s.lifeJobs); err != nil {
		return counted, err
	}
	if _, err := m.settle(ctx); err != nil {
		return counted, err
	}
	counted.writes, counted.refused, _, err = writesOf(c.auditLog(), managerUser, namespace, 0)
	if err != nil {
		return counted, err
	}
	for _, w := range workers {
		counted.newAnswers += w.newAnswers()
	}

	pods.lasting = true
	if err := c.change(ctx, pods); err != nil {
		return counted, err
	}
	more, err := createLives(ctx, c, "runs", variant)
	defer stopAll(more)
	if err != nil {
		return counted, err
	}
	if err := m.awaitState(ctx, mlv1.StateRunning, s.lifeJobs); err != nil {
		return counted, err
	}
	if err := pause(ctx, (lifeFigures+5)*time.Second); err != nil { // until all is reported
		return counted, err
	}
	m.stop()
	_, _, offset, err := writesOf(c.auditLog(), managerUser, namespace, 0)
	if err != nil {
		return counted, err
	}
	if m, err = c.startManager(ctx, append(arguments, "--resync="+resync.String())...); err != nil {
		return counted, err
	}
	if err := pause(ctx, unchanged); err != nil {
		return counted, err
	}
	counted.resyncLooks, err = m.counter(ctx, "trainingjob_reconciliation_total", "namespace", namespace)
	if err != nil {
		return counted, err
	}
	while, _, _, err := writesOf(c.auditLog(), managerUser, namespace, offset)
	counted.resyncWrites = sum(while)
	return counted, err
}

// createLives creates the jobs of a life, which keep checkpoints on claims that the operator makes.
func createLives(ctx context.Context, c *cluster, prefix string, variant lifeVariant) ([]*worker, error) {
	var (
		objects []client.Object
		workers []*worker
	)
	for i := range c.settings.lifeJobs {
		job := trainingJob(namespace, prefix+"-"+jobName(i), c.settings.workers)
		job.Spec.Checkpoint = &mlv1.Checkpoint{}
		if variant.figures {
			w, err := startWorker(lifeFigures)
			if err != nil {
				return workers, err
			}
			workers = append(workers, w)
			job.Spec.Monitoring = mlv1.Monitoring{MetricsPort: int32(w.port)}
		}
		objects = append(objects, job)
	}
	return workers, createAll(ctx, c.client, objects)
}

// makeVolumes makes volumes that claims are bound to at once.
func makeVolumes(ctx context.Context, c client.Client, count int) error {
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{
			Name: "simulated", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
		},
		Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: ptr.To(storagev1.VolumeBindingImmediate),
	}
	objects := []client.Object{class}
	for i := range count {
		objects = append(objects, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("volume-%d", i)},
			Spec: corev1.PersistentVolumeSpec{
				StorageClassName: class.Name, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")},
				PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/simulated"}},
			},
		})
	}
	return createAll(ctx, c, objects)
}

func stopAll(workers []*worker) {
	for _, w := range workers {
		w.stop()
	}
}

func pause(ctx context.Context, length time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(length):
		return nil
	}
}
