// Package child creates, checks, changes, deletes and caches the objects that a controller makes for those of its kind. The manager's own
// cache has those of TrainingJobs only, by another label.
package child

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Options of a cache.
type Options struct {
	// Label that every child has.
	Label string
	// Namespaces to watch; all when it is empty.
	Namespaces []string
	// Kinds of the children, each with what strips an object, before it enters the cache, of all that is not read.
	Kinds map[client.Object]toolscache.TransformFunc
}

// New returns a cache, which the manager starts with its own, before any controller, and a client that reads from it and writes to
// the API server. Indices may be added until the manager starts.
func New(mgr ctrl.Manager, options Options) (cache.Cache, client.Client, error) {
	selector, err := labels.Parse(options.Label)
	if err != nil {
		return nil, nil, fmt.Errorf("select objects with the label %s: %w", options.Label, err)
	}
	namespaces := map[string]cache.Config{}
	for _, namespace := range options.Namespaces {
		namespaces[namespace] = cache.Config{}
	}
	kinds := map[client.Object]cache.ByObject{}
	for kind, bare := range options.Kinds {
		kinds[kind] = cache.ByObject{Label: selector, Transform: bare}
	}
	children, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), DefaultNamespaces: namespaces,
		ByObject: kinds,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("make the cache of objects with the label %s: %w", options.Label, err)
	}
	if err := mgr.Add(runnable{children}); err != nil {
		return nil, nil, fmt.Errorf("add the cache of objects with the label %s: %w", options.Label, err)
	}
	through, err := client.New(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		Cache: &client.CacheOptions{Reader: children, EnableReadYourWritesConsistency: ptr.To(true)},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("make the client of objects with the label %s: %w", options.Label, err)
	}
	return children, through, nil
}

type runnable struct{ cache.Cache }

// GetCache has the manager start it with its own cache.
func (r runnable) GetCache() cache.Cache { return r.Cache }
