package reconciling

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// shortestRetry and longestRetry are the first wait after an error, which is doubled with each in a row, and the longest. The default of
// client-go, 1,000 s, would hold up what is to be done at a time of its own, such as at a deadline, while another write fails.
const shortestRetry, longestRetry = 5 * time.Millisecond, 30 * time.Second

// Options are those of every controller that reconciles objects of users, as many at a time.
func Options(concurrency int) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: concurrency,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](shortestRetry, longestRetry),
	}
}
