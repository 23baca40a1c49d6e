package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// spotConditions tells at the time of a scrape which conditions of SpotInstanceVMs and SpotInstanceJobs are False.
type spotConditions struct {
	objects    client.Reader
	maxObjects int
	vms, jobs  *prometheus.Desc
}

// NewSpotConditions returns a collector of the conditions that are False, read from the cache. At most maxObjects objects
// of each kind have figures; jobs that have ended have none.
func NewSpotConditions(objects client.Reader, maxObjects int) prometheus.Collector {
	return &spotConditions{
		objects: objects, maxObjects: maxObjects,
		vms: prometheus.NewDesc("spotinstancevm_condition_false", "1 for each condition of a SpotInstanceVM that is False.",
			[]string{"namespace", "spot_instance_vm", "condition", "reason"}, nil),
		jobs: prometheus.NewDesc("spotinstancejob_condition_false", "1 for each condition of an unfinished SpotInstanceJob that is False.",
			[]string{"namespace", "spot_instance_job", "condition", "reason"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *spotConditions) Describe(out chan<- *prometheus.Desc) {
	out <- c.vms
	out <- c.jobs
}

// Collect implements prometheus.Collector.
func (c *spotConditions) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	var vms spotv1alpha1.SpotInstanceVMList
	if err := c.objects.List(ctx, &vms, client.UnsafeDisableDeepCopy); err != nil {
		out <- prometheus.NewInvalidMetric(c.vms, err)
		return
	}
	for i := range vms.Items[:min(len(vms.Items), c.maxObjects)] {
		vm := &vms.Items[i]
		tell(out, c.vms, vm.Namespace, vm.Name, vm.Status.Conditions)
	}
	var jobs spotv1alpha1.SpotInstanceJobList
	if err := c.objects.List(ctx, &jobs, client.UnsafeDisableDeepCopy); err != nil {
		out <- prometheus.NewInvalidMetric(c.jobs, err)
		return
	}
	shown := 0
	for i := range jobs.Items {
		job := &jobs.Items[i]
		if job.Status.CompletionTime == nil && shown < c.maxObjects {
			shown++
			tell(out, c.jobs, job.Namespace, job.Name, job.Status.Conditions)
		}
	}
}

func tell(out chan<- prometheus.Metric, desc *prometheus.Desc, namespace, name string, conditions []metav1.Condition) {
	for _, condition := range conditions {
		if condition.Status == metav1.ConditionFalse {
			out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, 1, namespace, name, condition.Type, condition.Reason)
		}
	}
}
