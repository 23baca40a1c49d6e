package jobservice

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/runner"
)

// clusterOptions are the flags about Kubernetes.
type clusterOptions struct {
	use, kubeconfig     string
	client              runner.Options
	withoutAccessReview bool
	runner.Settings
}

// The values of --kubernetes.
const (
	kubernetesAuto = "auto"
	kubernetesYes  = "true"
	kubernetesNo   = "false"
)

// podVariable names the replica, by the downward API.
const podVariable = "POD_NAME"

func (o *clusterOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.use, "kubernetes", kubernetesAuto,
		"true: run jobs that name an image as AIJobs; false: do without Kubernetes; auto: true in a pod and with --kubeconfig or KUBECONFIG")
	flags.Lookup("kubernetes").NoOptDefVal = kubernetesYes
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "file that says where the API server is (default: KUBECONFIG, or the pod's own account)")
	flags.Float32Var(&o.client.QPS, "kube-api-qps", 200, "requests per second to the API server; -1 for no limit")
	flags.IntVar(&o.client.Burst, "kube-api-burst", 400, "requests to the API server at once above --kube-api-qps")
	flags.IntVar(&o.MaxAIJobs, "max-aijobs", 10000, "AIJobs that one replica looks after at a time; further jobs wait in the database")
	flags.IntVar(&o.MaxWaiting, "max-waiting-aijobs", 500, "of these the AIJobs that wait in one queue, which namespaces share; further jobs of it wait in the database")
	flags.DurationVar(&o.TTL, "aijob-ttl", time.Hour, "time that an AIJob stays after its end, for its logs")
	flags.DurationVar(&o.Discovery, "queue-discovery-interval", 5*time.Second, "interval at which it is asked which queues have jobs for Kubernetes")
	flags.BoolVar(&o.withoutAccessReview, "without-access-review", false,
		"do not ask Kubernetes what the user of a JWT may do: the token's claims alone decide")
	host, _ := os.Hostname()
	flags.StringVar(&o.Worker, "replica", cmp.Or(os.Getenv(podVariable), host, "job-service"),
		"name of this replica in leases (environment: "+podVariable+")")
}

func (o *clusterOptions) validate() error {
	switch o.use {
	case kubernetesAuto, kubernetesYes, kubernetesNo:
	default:
		return fmt.Errorf("--kubernetes: %q is none of auto, true and false", o.use)
	}
	if o.use == kubernetesNo && o.kubeconfig != "" {
		return errors.New("--kubeconfig: has no use with --kubernetes=false: remove one of the two")
	}
	if o.MaxAIJobs < 1 || o.MaxWaiting < 1 {
		return fmt.Errorf("--max-aijobs, --max-waiting-aijobs: %d and %d: choose at least 1", o.MaxAIJobs, o.MaxWaiting)
	}
	if o.TTL < 0 {
		return fmt.Errorf("--aijob-ttl: %s is less than 0", o.TTL)
	}
	if o.Discovery < 100*time.Millisecond {
		return fmt.Errorf("--queue-discovery-interval: %s is less than 100ms", o.Discovery)
	}
	return nil
}

// inPod says whether the service runs in a pod of a cluster.
func (o *clusterOptions) inPod() bool {
	return inAnyPod() && o.use != kubernetesNo
}

// inAnyPod says whether the program runs in a pod.
func inAnyPod() bool { return os.Getenv("KUBERNETES_SERVICE_HOST") != "" }

// wanted says whether the service works with Kubernetes.
func (o *clusterOptions) wanted() bool {
	return o.use == kubernetesYes || o.use == kubernetesAuto && (o.named() || o.inPod())
}

// named says whether a file says where the API server is.
func (o *clusterOptions) named() bool {
	return o.kubeconfig != "" || os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != ""
}

// connect to the cluster; nil: the service does without Kubernetes.
func (o *clusterOptions) connect() (*runner.Cluster, error) {
	if !o.wanted() {
		return nil, nil
	}
	config, err := o.config()
	if err != nil {
		return nil, err
	}
	return runner.NewCluster(config, o.client)
}

// config says where the API server is.
func (o *clusterOptions) config() (*rest.Config, error) {
	if !o.named() && o.inPod() {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("--kubernetes: %w", err)
		}
		return config, nil
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	return config, nil
}

// settings of the Dispatcher.
func (o *clusterOptions) settings() runner.Settings {
	settings := o.Settings
	settings.Sweep, settings.LeaseWait, settings.Backoff = min(time.Minute, max(time.Second, o.TTL)), 20*time.Second, 15*time.Second
	return settings
}
