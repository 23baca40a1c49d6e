package manager

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/dcnlab/spot-training-operator/controllers/workerpool"
)

// jobServiceName is the Service of the job service, in the operator's namespace.
const jobServiceName = "spot-training-operator-job-service"

// workerPoolOptions are the flags of pooled workers.
type workerPoolOptions struct {
	jobServiceURL string
}

func (o *workerPoolOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.jobServiceURL, "job-service-url", "",
		"where the manager and pooled workers reach the job service (default: http://"+jobServiceName+".NAMESPACE.svc:8000, in the manager's namespace)")
}

// addWorkerPools has queues get the workers that they ask for. A manager that does not know its namespace has neither a place for
// them nor a name to ask the job service by.
func addWorkerPools(mgr ctrl.Manager, o options) error {
	if o.webhooks.namespace == "" {
		mgr.GetLogger().Info("--namespace is not set: queues get no pooled workers", "environment", namespaceVariable)
		return nil
	}
	url := o.workerPools.jobServiceURL
	if url == "" {
		url = fmt.Sprintf("http://%s.%s.svc:8000", jobServiceName, o.webhooks.namespace)
	}
	pools := &workerpool.Reconciler{
		Client: mgr.GetClient(), Direct: mgr.GetAPIReader(), Clock: clock.RealClock{},
		Settings: workerpool.Settings{Namespace: o.webhooks.namespace, WorkerImage: o.workerImage, JobServiceURL: url},
	}
	return pools.SetupWithManager(mgr)
}
