package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// NewSpotConditions returns a collector of the conditions that are False, read from the cache. At most maxObjects objects
// of each kind have figures; jobs that have ended have none.
func NewSpotConditions(objects client.Reader, maxObjects int) prometheus.Collector {
	s := &scraped{}
	ofVMs := s.gauge("spotinstancevm_condition_false", "1 for each condition of a SpotInstanceVM that is False.",
		"namespace", "spot_instance_vm", "condition", "reason")
	ofJobs := s.gauge("spotinstancejob_condition_false", "1 for each condition of an unfinished SpotInstanceJob that is False.",
		"namespace", "spot_instance_job", "condition", "reason")
	s.collect = func(ctx context.Context, send sender) error {
		sendFalse := func(of figure, object client.Object, conditions []metav1.Condition) {
			for _, condition := range conditions {
				if condition.Status == metav1.ConditionFalse {
					send(of, 1, object.GetNamespace(), object.GetName(), condition.Type, condition.Reason)
				}
			}
		}
		var vms spotv1alpha1.SpotInstanceVMList
		if err := objects.List(ctx, &vms, client.UnsafeDisableDeepCopy); err != nil {
			return err
		}
		for i := range vms.Items[:min(len(vms.Items), maxObjects)] {
			sendFalse(ofVMs, &vms.Items[i], vms.Items[i].Status.Conditions)
		}
		var jobs spotv1alpha1.SpotInstanceJobList
		if err := objects.List(ctx, &jobs, client.UnsafeDisableDeepCopy); err != nil {
			return err
		}
		shown := 0
		for i := range jobs.Items {
			if job := &jobs.Items[i]; job.Status.CompletionTime == nil && shown < maxObjects {
				shown++
				sendFalse(ofJobs, job, job.Status.Conditions)
			}
		}
		return nil
	}
	return s
}
