package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	clientset "k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clientrest "k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// Cluster is the Kubernetes cluster that the service works with.
type Cluster struct {
	// direct asks the API server each time; cached holds what is asked for often, and follows it.
	direct client.Client
	cached cache.Cache
	typed  clientset.Interface
	// reviews asks the API server about tokens and rights.
	reviews clientset.Interface
	// probe is a client with a short timeout, for Check.
	probe clientrest.Interface
	// logSlots bound how many logs of pods are read at the same time.
	logSlots chan struct{}
}

// Options of a Cluster.
type Options struct {
	// QPS and Burst limit the requests to the API server; below 0: no limit.
	QPS   float32
	Burst int
}

// The time that one request may take. Logs that are followed take as long as they want.
const requestTimeout = 30 * time.Second

// NewCluster returns the cluster of a client configuration. It asks the API server for nothing yet; Run follows it.
func NewCluster(config *clientrest.Config, options Options) (*Cluster, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), aiplatformv1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("register the API types: %w", err)
	}
	streaming := clientrest.CopyConfig(config)
	streaming.QPS, streaming.Burst = options.QPS, options.Burst
	if streaming.UserAgent == "" {
		streaming.UserAgent = "job-service"
	}
	limited := clientrest.CopyConfig(streaming)
	limited.Timeout = requestTimeout
	// A limit of its own: a busy Dispatcher must not make the service seem cut off.
	probing := clientrest.CopyConfig(streaming)
	probing.QPS, probing.Timeout = -1, 3*time.Second
	// One transport, and so one limit and one set of connections, for all clients but the streams.
	transport, errTransport := clientrest.HTTPClientFor(limited)
	watching, errWatching := clientrest.HTTPClientFor(streaming)
	probe, errProbe := clientset.NewForConfig(probing)
	if err := errors.Join(errTransport, errWatching, errProbe); err != nil {
		return nil, fmt.Errorf("set up the connection to the API server: %w", err)
	}
	mapper := newMapper()
	c := &Cluster{logSlots: make(chan struct{}, logPods), probe: probe.CoreV1().RESTClient()}
	var errs [4]error
	c.direct, errs[0] = client.New(limited, client.Options{HTTPClient: transport, Scheme: scheme, Mapper: mapper})
	c.cached, errs[1] = cache.New(streaming, cache.Options{HTTPClient: watching, Scheme: scheme, Mapper: mapper, ByObject: cachedObjects()})
	c.typed, errs[2] = clientset.NewForConfigAndClient(streaming, watching)
	// A limit of their own: neither do many unknown tokens keep others from the API server, nor what is busy keeps users out.
	c.reviews, errs[3] = clientset.NewForConfigAndClient(limited, transport)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("set up the clients of the API server: %w", err)
	}
	return c, nil
}

// newMapper knows the kinds that are worked with, so that the service can start, and take jobs, while the API server does not answer.
func newMapper() meta.RESTMapper {
	platform, core := aiplatformv1alpha1.GroupVersion, corev1.SchemeGroupVersion
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{platform, core})
	mapper.Add(platform.WithKind("AIJob"), meta.RESTScopeNamespace)
	mapper.Add(platform.WithKind("AgentWorkflow"), meta.RESTScopeNamespace)
	mapper.Add(platform.WithKind("AIJobQueue"), meta.RESTScopeRoot)
	mapper.Add(platform.WithKind("ComputeCluster"), meta.RESTScopeRoot)
	mapper.Add(core.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(core.WithKind("Node"), meta.RESTScopeRoot)
	return mapper
}

// cachedObjects says what of each kind is kept.
func cachedObjects() map[client.Object]cache.ByObject {
	ours, err := labels.NewRequirement(aiplatformv1alpha1.LabelServiceJob, selection.Exists, nil)
	if err != nil {
		panic(err) // the label is a constant
	}
	return map[client.Object]cache.ByObject{
		&aiplatformv1alpha1.AIJob{}: {Label: labels.NewSelector().Add(*ours), Transform: trim},
		&corev1.Node{}:              {Transform: trimNode},
		&corev1.Pod{}:               {Transform: trimPod},
	}
}

// Run follows the cluster until the context ends.
func (c *Cluster) Run(ctx context.Context) error {
	if err := c.cached.Start(ctx); err != nil {
		return fmt.Errorf("follow the cluster: %w", err)
	}
	return nil
}

// Check says why the API server cannot be used; nil: it can.
func (c *Cluster) Check(ctx context.Context) error {
	if err := c.probe.Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return unavailable("ask the API server whether it is ready", err)
	}
	return nil
}

// unavailable says that the API server did not answer as it should.
func unavailable(what string, err error) error {
	return fmt.Errorf("%s: %w: %w", what, jobs.ErrUnavailable, err)
}

// refused says whether the API server has refused what was asked for, and would do so again.
func refused(err error) bool {
	var status apierrors.APIStatus
	if apierrors.IsNotFound(err) && errors.As(err, &status) {
		// The namespace does not exist; that the kind does not may pass.
		return status.Status().Details != nil && status.Status().Details.Kind == "namespaces"
	}
	return apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsInvalid(err) || isDenied(err)
}

// isDenied says whether an object is forbidden for what it is, or by the end of its namespace. A right that is missing, or a quota that is
// used up, may pass, and must not end all jobs that come meanwhile.
func isDenied(err error) bool {
	return apierrors.IsForbidden(err) && (apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) ||
		strings.Contains(err.Error(), " denied the request") || // by a webhook
		strings.Contains(err.Error(), " denied request")) // by a ValidatingAdmissionPolicy
}
