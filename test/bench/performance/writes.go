package performance

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
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

	writes     map[write]int
	refused    int
	newAnswers int64
	// resyncWrites were sent, and resyncLooks jobs looked at, by a manager that was restarted beside finished and
	// running jobs and looked at all objects every few seconds.
	resyncWrites int
	resyncLooks  float64
}

func measureWrites(b *bench, results *strings.Builder) {
	var lives []life
	for _, variant := range []lifeVariant{
		{name: "as installed", policy: true},
		{name: "without the admission policy"},
		{name: fmt.Sprintf("as installed, %d new figures per job", lifeFigures), policy: true, figures: true},
	} {
		b.part(variant.name, func(b *bench) {
			say("writes of %d jobs, %s", b.lifeJobs, variant.name)
			lives = append(lives, b.measureLife(variant))
		})
	}
	b.writesTable(results, lives)
}

func (b *bench) writesTable(out *strings.Builder, lives []life) {
	kinds := map[write]bool{}
	for _, counted := range lives {
		for kind := range counted.writes {
			kinds[kind] = true
		}
	}
	sorted := slices.SortedFunc(maps.Keys(kinds), func(one, other write) int {
		return cmp.Or(cmp.Compare(one.verb, other.verb), cmp.Compare(one.resource, other.resource))
	})
	fmt.Fprintf(out, "\nWrites of the manager per job, from creation to Completed (%d jobs of %d workers, with checkpoints on a claim):\n\n",
		b.lifeJobs, b.workers)
	row(out, lives, "write", func(l life) string { return l.name })
	fmt.Fprintf(out, "|---%s\n", strings.Repeat("|---:", len(lives))+"|")
	for _, kind := range sorted {
		row(out, lives, kind.verb+" "+kind.resource, func(l life) string { return ofEach(l.writes[kind], b.lifeJobs) })
	}
	row(out, lives, "**all**", func(l life) string { return "**" + ofEach(sum(l.writes), b.lifeJobs) + "**" })
	row(out, lives, "refused by the API server, of these", func(l life) string { return ofEach(l.refused, b.lifeJobs) })
	row(out, lives, "scrapes that brought new figures", func(l life) string { return ofEach(int(l.newAnswers), b.lifeJobs) })
	row(out, lives, fmt.Sprintf("**writes in %.0f s of unchanged jobs**, half of them finished, all jobs together", unchanged.Seconds()),
		func(l life) string { return fmt.Sprintf("**%d**", l.resyncWrites) })
	row(out, lives, "reconciliations meanwhile", func(l life) string { return fmt.Sprintf("%.0f", l.resyncLooks) })
}

func row(out *strings.Builder, lives []life, title string, cell func(life) string) {
	fmt.Fprintf(out, "| %s |", title)
	for _, l := range lives {
		fmt.Fprintf(out, " %s |", cell(l))
	}
	fmt.Fprintln(out)
}

func (b *bench) measureLife(variant lifeVariant) life {
	counted := life{lifeVariant: variant}
	pods := podLife{
		running:  [2]time.Duration{500 * time.Millisecond, 3 * time.Second},
		ending:   [2]time.Duration{10 * time.Second, 11 * time.Second},
		loopback: variant.figures,
	}
	c := b.startCluster(clusterOptions{policy: variant.policy, audit: true, pods: pods})
	const often = "--progress-interval=1s"
	c.startManager(often)
	c.makeVolumes(2 * b.lifeJobs)
	workers := c.createLives("ends", variant)
	c.awaitState(mlv1.StateCompleted, b.lifeJobs)
	c.settle()
	counted.writes, counted.refused, _ = c.audited(0)
	for _, w := range workers {
		counted.newAnswers += min(w.answers.Load(), lifeFigures)
	}

	pods.lasting = true
	c.change(pods)
	c.createLives("runs", variant)
	c.awaitState(mlv1.StateRunning, b.lifeJobs)
	b.pause((lifeFigures + 5) * time.Second) // until all is reported
	c.stop(managerName)
	_, _, offset := c.audited(0)
	c.startManager(often, "--resync="+resync.String())
	b.pause(unchanged)
	counted.resyncLooks = c.counter("trainingjob_reconciliation_total", "namespace", namespace)
	while, _, _ := c.audited(offset)
	counted.resyncWrites = sum(while)
	return counted
}

// createLives creates the jobs of a life, which keep checkpoints on claims that the operator makes.
func (c *cluster) createLives(prefix string, variant lifeVariant) (workers []*worker) {
	var objects []client.Object
	for i := range c.lifeJobs {
		job := trainingJob(namespace, prefix+"-"+jobName(i), c.workers)
		job.Spec.Checkpoint = &mlv1.Checkpoint{}
		if variant.figures {
			w := c.startWorker(advancing(lifeFigures))
			w.reports(job)
			workers = append(workers, w)
		}
		objects = append(objects, job)
	}
	require.NoError(c, c.createAll(c.Context(), objects))
	return workers
}

// makeVolumes makes volumes that claims are bound to at once.
func (c *cluster) makeVolumes(count int) {
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
	require.NoError(c, c.createAll(c.Context(), objects))
}
