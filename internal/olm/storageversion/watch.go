package storageversion

import (
	"context"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// source brings the name of each CRD once it is known whether it exists, whenever it changes, and at every resync. Each
// CRD has a watch of its own, of its metadata only: so the permission can name the CRDs.
func (m *Migrator) source() source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		for _, name := range m.options.CRDs {
			if err := m.follow(ctx, name, queue); err != nil {
				return err
			}
		}
		return nil
	})
}

func (m *Migrator) follow(ctx context.Context, name string, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	enqueue := func() { queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}) }
	informer := metadatainformer.NewFilteredMetadataInformer(m.options.Metadata,
		apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"), metav1.NamespaceAll, m.options.Resync,
		cache.Indexers{}, func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		}).Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(_ any, isInInitialList bool) {
			if !isInInitialList {
				enqueue()
			}
		},
		UpdateFunc: func(_, _ any) { enqueue() },
		DeleteFunc: func(any) { enqueue() },
	})
	if err != nil {
		return err
	}
	go informer.RunWithContext(ctx)
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			enqueue()
		}
	}()
	return nil
}
