package checkpointbackup

import (
	"context"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Queue takes the requests of a controller.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Source watches CheckpointBackups for a controller (builder.WatchesRawSource), from when the cluster serves them. The
// objects are unstructured: read them with Decode. The function changed, which may be nil, is called when the version
// that is served changes, the first time and when the CRD goes as well: it adds what waits for that.
func (c *Client) Source(events handler.EventHandler, changed func(ctx context.Context, version string, queue Queue)) source.Source {
	return source.Func(func(ctx context.Context, queue Queue) error {
		go c.follow(ctx, events, changed, queue)
		return nil
	})
}

func (c *Client) follow(ctx context.Context, events handler.EventHandler, changed func(context.Context, string, Queue), queue Queue) {
	logger := log.FromContext(ctx).WithName("checkpointbackups")
	watched, first := "", true
	stop := func() {}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		version, err := c.Version()
		switch {
		case err != nil:
			logger.Error(err, "Discover the served version of CheckpointBackups; trying again")
		case version != watched || first:
			stop()
			watched, first = version, false
			logger.Info("Served version of CheckpointBackups changed", "version", version)
			if stop, err = c.watch(ctx, version, events, queue); err != nil {
				logger.Error(err, "Watch CheckpointBackups; trying again", "version", version)
				first = true
			}
			if changed != nil {
				changed(ctx, version, queue)
			}
		}
	}, c.every)
	stop()
}

// watch begins to watch a version, until the returned function is called.
func (c *Client) watch(ctx context.Context, version string, events handler.EventHandler, queue Queue) (func(), error) {
	if version == "" {
		return func() {}, nil
	}
	within, cancel := context.WithCancel(ctx)
	stop := func() {
		cancel()
		// Without this it would go on to ask for a kind that is gone.
		if err := c.cache.RemoveInformer(ctx, Object(version)); err != nil {
			log.FromContext(ctx).Error(err, "Stop watching CheckpointBackups", "version", version)
		}
	}
	return stop, source.Kind[client.Object](c.cache, Object(version), events).Start(within, queue)
}
