package checkpointbackup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrNotServed is returned while the cluster has no CheckpointBackups: no agent has installed its CRD.
var ErrNotServed = errors.New("the cluster serves no CheckpointBackup: no checkpoint agent is installed")

// Discovery tells what the cluster serves.
type Discovery interface {
	ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error)
}

// Client reads and writes CheckpointBackups in the version that the cluster serves.
type Client struct {
	reader    client.Reader
	writer    client.Writer
	cache     cache.Cache
	discovery Discovery
	clock     clock.PassiveClock
	// every is how long to go by what the cluster was seen to serve. A CRD that is installed or removed later is found then.
	every time.Duration

	mutex sync.Mutex
	seen  time.Time
	found string
}

// NewClient returns a client that reads and writes by the given ones. The cache may be nil; without it Source is of no
// use.
func NewClient(reader client.Reader, writer client.Writer, watched cache.Cache, discover Discovery, now clock.PassiveClock) *Client {
	return &Client{reader: reader, writer: writer, cache: watched, discovery: discover, clock: now, every: 15 * time.Second}
}

// ForManager returns a client that reads from the manager's cache, where an object that was just created may still be
// missing: name it so that creating it again fails.
func ForManager(mgr ctrl.Manager) (*Client, error) {
	discover, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("set up discovery: %w", err)
	}
	return NewClient(mgr.GetCache(), mgr.GetClient(), mgr.GetCache(), discover, clock.RealClock{}), nil
}

// Version in which the cluster serves CheckpointBackups, the preferred one when there are several; empty when it serves
// none. The answer is up to 15 seconds old.
func (c *Client) Version() (string, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	now := c.clock.Now()
	if !c.seen.IsZero() && now.Sub(c.seen) < c.every {
		return c.found, nil
	}
	for _, version := range Versions {
		group := schema.GroupVersion{Group: GroupKind.Group, Version: version}
		resources, err := c.discovery.ServerResourcesForGroupVersion(group.String())
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("ask whether %s is served: %w", group, err)
		}
		for _, resource := range resources.APIResources {
			if resource.Kind == GroupKind.Kind {
				c.found, c.seen = version, now
				return version, nil
			}
		}
	}
	c.found, c.seen = "", now
	return "", nil
}

// Create asks for a checkpoint. The owner, if any, takes it along when it is deleted. The error is ErrNotServed, or the
// API server's, for example that there is one of the name.
func (c *Client) Create(ctx context.Context, b Backup, owners ...metav1.OwnerReference) error {
	version, err := c.version()
	if err != nil {
		return err
	}
	object := Encode(b, version)
	object.SetOwnerReferences(owners)
	if err := c.writer.Create(ctx, object); err != nil {
		return c.explain(fmt.Errorf("create CheckpointBackup %s: %w", b.Key, err), err)
	}
	return nil
}

// Get reads one in the version that the cluster serves: by a reader past the cache, or by the client's own for nil.
func (c *Client) Get(ctx context.Context, reader client.Reader, key types.NamespacedName) (*unstructured.Unstructured, error) {
	version, err := c.version()
	if err != nil {
		return nil, err
	}
	object := Object(version)
	if err := cmp.Or(reader, c.reader).Get(ctx, key, object); err != nil {
		return nil, c.explain(fmt.Errorf("read CheckpointBackup %s: %w", key, err), err)
	}
	return object, nil
}

// List returns the CheckpointBackups of a namespace, or of all for "", that carry the labels. The error is ErrNotServed
// when there can be none.
func (c *Client) List(ctx context.Context, namespace string, labels map[string]string) ([]Backup, error) {
	version, err := c.version()
	if err != nil {
		return nil, err
	}
	objects := &unstructured.UnstructuredList{}
	objects.SetGroupVersionKind(schema.GroupVersionKind{Group: GroupKind.Group, Version: version, Kind: GroupKind.Kind + "List"})
	if err := c.reader.List(ctx, objects, client.InNamespace(namespace), client.MatchingLabels(labels)); err != nil {
		return nil, c.explain(fmt.Errorf("list CheckpointBackups: %w", err), err)
	}
	all := make([]Backup, 0, len(objects.Items))
	for i := range objects.Items {
		all = append(all, Decode(&objects.Items[i]))
	}
	return all, nil
}

// Delete removes one. It is no error when there is none, nor when the cluster serves none.
func (c *Client) Delete(ctx context.Context, b Backup) error {
	version, err := c.version()
	if errors.Is(err, ErrNotServed) {
		return nil
	}
	if err != nil {
		return err
	}
	object := Object(version)
	object.SetNamespace(b.Key.Namespace)
	object.SetName(b.Key.Name)
	// A client that reads its own writes would first ask for the object, and the cache is not waited for here.
	if err := c.writer.Delete(ctx, object, client.DisableReadYourWritesConsistency); client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
		return fmt.Errorf("delete CheckpointBackup %s: %w", b.Key, err)
	}
	return nil
}

// IsServed asks the API server whether it knows the group of CheckpointBackups.
func IsServed(ctx context.Context, server rest.Interface) (bool, error) {
	err := server.Get().AbsPath("/apis/" + GroupKind.Group).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

func (c *Client) version() (string, error) {
	version, err := c.Version()
	if err == nil && version == "" {
		err = ErrNotServed
	}
	return version, err
}

// explain turns the answer that there is no such kind into ErrNotServed: the CRD has just gone. A namespace that is not
// found is another matter, and has details that say so.
func (c *Client) explain(told, err error) error {
	var answer apierrors.APIStatus
	noSuchPath := apierrors.IsNotFound(err) && errors.As(err, &answer) &&
		(answer.Status().Details == nil || answer.Status().Details.Name == "")
	if meta.IsNoMatchError(err) || noSuchPath {
		c.mutex.Lock()
		c.seen = time.Time{}
		c.mutex.Unlock()
		return fmt.Errorf("%w (%w)", ErrNotServed, err)
	}
	return told
}
