package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/event"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/controllers/aijob"
	"github.com/dcnlab/spot-training-operator/controllers/certificaterequest"
	"github.com/dcnlab/spot-training-operator/controllers/nodeagent"
	"github.com/dcnlab/spot-training-operator/controllers/nodelabel"
	"github.com/dcnlab/spot-training-operator/controllers/queuestatus"
	"github.com/dcnlab/spot-training-operator/controllers/spotinstancejob"
	"github.com/dcnlab/spot-training-operator/controllers/spotinstancevm"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob"
	"github.com/dcnlab/spot-training-operator/controllers/workerpool"
	"github.com/dcnlab/spot-training-operator/controllers/workflow"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/cloud/gcp"
	"github.com/dcnlab/spot-training-operator/internal/cloud/inventory"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
	"github.com/dcnlab/spot-training-operator/internal/queueing"
	"github.com/dcnlab/spot-training-operator/internal/training/progress"
)

const (
	// aiJobsAtOnce is how many AIJobs are reconciled at the same time for each TrainingJob: they are short, come by the thousand, and
	// mostly wait for the API server.
	aiJobsAtOnce = 2
	// nodeAgentImageVariable names the image of the node agent: the manager's own.
	nodeAgentImageVariable = "RELATED_IMAGE_NODE_AGENT"
)

// controllerOptions are the flags of single controllers.
type controllerOptions struct {
	nodeAgent         nodeagent.Settings
	gcpEndpoint       string
	cloudListInterval time.Duration
}

func (o *controllerOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.nodeAgent.Image, "node-agent-image",
		cmp.Or(os.Getenv(nodeAgentImageVariable), os.Getenv(agentImageVariable), "spot-training-operator:latest"),
		"image of the agent on spot nodes: the manager's own (environment: "+nodeAgentImageVariable+")")
	flags.StringVar(&o.nodeAgent.MetadataURL, "node-agent-metadata-url", "",
		"where the agent on spot nodes finds the instance's metadata server (default: Compute Engine's, by its address)")
	flags.StringVar(&o.gcpEndpoint, "gcp-endpoint", "", "URL of the Compute Engine API (default: Google's)")
	flags.DurationVar(&o.cloudListInterval, "cloud-list-interval", 30*time.Second,
		"interval at which the instances of each zone are listed, at least 1s")
}

func (o *controllerOptions) validate() error {
	if o.cloudListInterval < time.Second {
		return fmt.Errorf("--cloud-list-interval: %s is less than 1s: choose at least 1s, since each list is a request to the provider", o.cloudListInterval)
	}
	if o.gcpEndpoint == "" {
		return nil
	}
	if at, err := url.Parse(o.gcpEndpoint); err != nil || at.Host == "" || (at.Scheme != "http" && at.Scheme != "https") {
		return fmt.Errorf("--gcp-endpoint: %q is not a valid URL: write for example https://compute.googleapis.com", o.gcpEndpoint)
	}
	return nil
}

// setup is what the controllers are made of.
type setup struct {
	ctrl.Manager
	options

	recorder events.EventRecorder
	// admission decides upon the TrainingJobs of queues.
	admission queueing.Decider
	// decider is the admission of a manager of all namespaces; nil otherwise.
	decider *queueing.Service
	// authorities of the job service's certificate; nil: there are none beside those of the system.
	authorities func() (bundle string, known bool)
}

// addControllers adds the controllers of all kinds.
func addControllers(ctx context.Context, mgr ctrl.Manager, o options, recorder events.EventRecorder) error {
	s := setup{Manager: mgr, options: o, recorder: recorder}
	for _, controller := range s.controllersOf() {
		if err := controller.add(ctx); err != nil {
			return fmt.Errorf("set up the %s controller: %w", controller.name, err)
		}
	}
	return nil
}

// named is what adds a controller.
type named struct {
	name string
	add  func(context.Context) error
}

// controllersOf are the controllers of the manager. One that is limited to namespaces has only those whose work stays in these.
func (s *setup) controllersOf() []named {
	jobs := []named{
		{"TrainingJob", s.addTrainingJobs},
		{"SpotInstanceJob", s.addSpotInstanceJobs},
		// Its pods mount it wherever they are installed: by OLM also beside a manager of some namespaces.
		{"job service certificate", s.addJobServiceCertificate},
	}
	if !s.namespaces.areAll() {
		s.admission = queueing.Refusal{Reason: reasons.ClusterScopeRequired, Message: "no AIJobQueue is served in this namespace, because the operator is " +
			"limited to namespaces (--namespaces) and a quota counts the jobs of all of them: use an operator of all namespaces, or create the job " +
			"again without a queue"}
		return append(jobs, named{"unserved", s.addUnserved})
	}
	s.decider = queueing.New(s.Manager, metrics.NewAdmission(ctrlmetrics.Registry))
	s.decider.RequireQueue = s.settings.RequireQueue
	overheads := queueing.RuntimeClasses(s.GetAPIReader())
	s.decider.Add(aijob.Source(s.settings.DefaultResources, overheads))
	s.decider.Add(trainingjob.Source(s.settings, queueing.PriorityClasses(s.GetCache()), overheads))
	s.admission = s.decider
	return append(
		jobs,
		named{"node agent", s.addNodeAgent},
		named{"node label", s.addNodeLabels},
		named{"SpotInstanceVM", s.addSpotInstanceVMs},
		named{"certificate request", s.addCertificateRequests},
		named{"queue", s.addQueues},
		named{"AIJob", s.addAIJobs},
		named{"AgentWorkflow", s.addWorkflows},
		named{"worker pool", s.addWorkerPools},
	)
}

// register adds collectors of metrics once this replica leads: two replicas must not both report the same objects.
func (s *setup) register(collectors ...prometheus.Collector) error {
	return s.Add(ctrlmanager.RunnableFunc(func(context.Context) error {
		var errs []error
		for _, collector := range collectors {
			errs = append(errs, ctrlmetrics.Registry.Register(collector))
		}
		return errors.Join(errs...)
	}))
}

// lastWords is how long after the end of a namespace its objects may still be heard of: each kind has a watch of its own.
const lastWords = 10 * time.Second

// onNamespaceGone has the metrics of a namespace dropped that no longer exists. A manager of some namespaces watches none: they are few.
func (s *setup) onNamespaceGone(ctx context.Context, forget func(namespace string)) error {
	if !s.namespaces.areAll() {
		return nil
	}
	namespaces, err := s.GetCache().GetInformer(ctx, &corev1.Namespace{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch namespaces: %w", err)
	}
	_, err = namespaces.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(object any) {
		if namespace, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
			time.AfterFunc(lastWords, func() { forget(namespace) })
		}
	}})
	return err
}

func (s *setup) addTrainingJobs(ctx context.Context) error {
	reported := make(chan event.TypedGenericEvent[types.NamespacedName], 1024)
	counters := metrics.NewTrainingJobs(ctrlmetrics.Registry, s.metricsMaxJobs)
	scraper := progress.NewScraper(progress.ScraperOptions{
		Interval: s.progressInterval, Workers: s.progressWorkers,
		Changed: func(job types.NamespacedName) {
			select {
			case reported <- event.TypedGenericEvent[types.NamespacedName]{Object: job}:
			case <-ctx.Done():
			}
		},
		Scraped: func(job types.NamespacedName, took time.Duration, err error) {
			counters.Scraped(job.Namespace, job.Name, took, err != nil)
		},
	})
	jobs := &trainingjob.Reconciler{
		Client: s.GetClient(), Direct: s.GetAPIReader(), Clock: clock.RealClock{}, Recorder: s.recorder,
		Progress: scraper, Admission: s.admission, Metrics: counters, Settings: s.settings,
	}
	return errors.Join(
		s.Add(scraper),
		jobs.SetupWithManager(ctx, s.Manager, trainingjob.Options{Concurrency: s.concurrency, Reported: reported}),
		s.onNamespaceGone(ctx, counters.ForgetNamespace),
		s.register(metrics.NewTrainingJobStatus(s.GetCache(), s.metricsMaxJobs, clock.RealClock{})),
	)
}

// addNodeAgent has the agent put on spot nodes. A manager that does not know its namespace has no place for it.
func (s *setup) addNodeAgent(context.Context) error {
	if s.webhooks.namespace == "" {
		s.GetLogger().Info("--namespace is not set: no node agent is put on spot nodes", "environment", namespaceVariable)
		return nil
	}
	s.controllers.nodeAgent.Namespace = s.webhooks.namespace
	reviews, err := kubernetes.NewForConfigAndClient(s.GetConfig(), s.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("set up the client for access reviews: %w", err)
	}
	agents := &nodeagent.Reconciler{
		Client: s.GetClient(), Direct: s.GetAPIReader(), Reviews: reviews, Recorder: s.recorder, Settings: s.controllers.nodeAgent,
	}
	return agents.SetupWithManager(s.Manager)
}

func (s *setup) addNodeLabels(context.Context) error {
	return (&nodelabel.Reconciler{Client: s.GetClient()}).SetupWithManager(s.Manager)
}

func (s *setup) addSpotInstanceVMs(ctx context.Context) error {
	// The manager's own client would set up a cache of all Secrets, which the manager may not even list.
	uncached, err := child.Uncached(s.Manager)
	if err != nil {
		return err
	}
	vms := &spotinstancevm.Reconciler{
		Client: s.GetClient(), Direct: s.GetAPIReader(), Secrets: uncached, Clock: clock.RealClock{}, Recorder: s.recorder,
		Metrics: metrics.NewSpotInstances(ctrlmetrics.Registry),
		Provide: func(ctx context.Context, account inventory.Account) (cloud.Provider, error) {
			return gcp.New(ctx, gcp.Options{
				Project: account.Project, Credentials: account.Credentials, Endpoint: s.controllers.gcpEndpoint,
				UserAgent: "spot-training-operator",
			})
		},
		Joining: &spotinstancevm.KubeadmJoining{Client: uncached, Direct: s.GetAPIReader(), Namespace: s.webhooks.namespace},
		Uses:    s.decider.NodeUses,
		Queued:  func(job *mlv1.TrainingJob) []*corev1.Pod { return trainingjob.PodsWithoutPlace(job, s.settings) },
	}
	return errors.Join(
		vms.SetupWithManager(ctx, s.Manager, spotinstancevm.Options{Concurrency: s.concurrency, ListInterval: s.controllers.cloudListInterval}),
		s.register(metrics.NewSpotInstanceStatus(s.GetCache(), s.metricsMaxJobs)),
	)
}

// addCertificateRequests has instances get the certificates of their nodes.
func (s *setup) addCertificateRequests(context.Context) error {
	requests := &certificaterequest.Reconciler{Client: s.GetClient(), Direct: s.GetAPIReader()}
	return requests.SetupWithManager(s.Manager)
}

func (s *setup) addSpotInstanceJobs(ctx context.Context) error {
	counters := metrics.NewSpotInstanceJobs(ctrlmetrics.Registry)
	jobs := &spotinstancejob.Reconciler{
		Client: s.GetClient(), Direct: s.GetAPIReader(), Clock: clock.RealClock{}, Recorder: s.recorder, Metrics: counters,
	}
	return errors.Join(
		s.onNamespaceGone(ctx, counters.ForgetNamespace),
		jobs.SetupWithManager(ctx, s.Manager, spotinstancejob.Options{Concurrency: s.concurrency, Namespaces: s.namespaces}),
		s.register(metrics.NewSpotInstanceJobStatus(s.GetCache(), s.metricsMaxJobs)),
	)
}

// addQueues adds what decides upon the jobs of all queues, and the controllers that report of queues and clusters.
func (s *setup) addQueues(context.Context) error {
	queues := &queuestatus.QueueReconciler{Client: s.GetClient(), Clock: clock.RealClock{}, Figures: s.decider}
	clusters := &queuestatus.ClusterReconciler{Client: s.GetClient(), Clock: clock.RealClock{}, Figures: s.decider}
	return errors.Join(
		queues.SetupWithManager(s.Manager), clusters.SetupWithManager(s.Manager), s.Add(s.decider), s.register(metrics.NewQueueDepths(s.decider.Depths)),
	)
}

func (s *setup) addAIJobs(ctx context.Context) error {
	jobs := &aijob.Reconciler{
		Client: s.GetClient(), Direct: s.GetAPIReader(), Clock: clock.RealClock{}, Recorder: s.recorder,
		Metrics: metrics.NewAIJobs(ctrlmetrics.Registry), Decider: s.decider, DefaultResources: s.settings.DefaultResources,
		OperatorImage: s.settings.AgentImage,
	}
	return jobs.SetupWithManager(ctx, s.Manager, aijob.Options{Concurrency: aiJobsAtOnce * s.concurrency})
}

func (s *setup) addWorkflows(ctx context.Context) error {
	agents := &workflow.AgentReconciler{Client: s.GetClient(), Clock: clock.RealClock{}}
	workflows := &workflow.Reconciler{Client: s.GetClient(), Direct: s.GetAPIReader(), Clock: clock.RealClock{}, Recorder: s.recorder}
	return errors.Join(agents.SetupWithManager(s.Manager), workflows.SetupWithManager(ctx, s.Manager, workflow.Options{Concurrency: s.concurrency}))
}

// addJobServiceCertificate has the job service's certificate kept. It comes before the worker pools, which trust it.
func (s *setup) addJobServiceCertificate(context.Context) (err error) {
	s.authorities, err = s.jobService.addCertificate(s.Manager, s.webhooks.namespace)
	return err
}

// addWorkerPools has queues get the workers that they ask for. A manager that does not know its namespace has neither a place for them nor
// an address of the job service.
func (s *setup) addWorkerPools(context.Context) error {
	if s.webhooks.namespace == "" {
		s.GetLogger().Info("--namespace is not set: queues get no pooled workers", "environment", namespaceVariable)
		return nil
	}
	pools := &workerpool.Reconciler{
		Client: s.GetClient(), Direct: s.GetAPIReader(), Clock: clock.RealClock{},
		Settings: workerpool.Settings{
			Namespace: s.webhooks.namespace, WorkerImage: s.settings.WorkerImage,
			JobServiceURL: s.jobService.address(s.webhooks.namespace), Authorities: s.authorities,
		},
	}
	return pools.SetupWithManager(s.Manager)
}
