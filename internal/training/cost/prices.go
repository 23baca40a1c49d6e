package cost

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// priceAge is how long the price of a node is kept in memory before it is read again.
	priceAge = 10 * time.Minute
	// RetryPrice is when a price that could not be read is asked for again.
	RetryPrice = time.Minute
)

// Prices keeps the prices of nodes that ran workers. Nodes are read one by one and seldom, rather than held in the cache: most of a
// node's object is not needed here, and changes every minute. It is safe for concurrent use.
type Prices struct {
	mutex sync.Mutex
	nodes map[string]knownPrice
}

type knownPrice struct {
	price *Price // nil for none
	read  time.Time
	// failed is when it could not be read, and why; a price from before that stays good.
	failed time.Time
	why    error
}

// Of returns the price of a node; nil when it has none. The last price of a node that is gone, or cannot be read, stays good.
func (p *Prices) Of(ctx context.Context, nodes client.Reader, name string, now time.Time) (*Price, error) {
	p.mutex.Lock()
	known, ok := p.nodes[name]
	p.mutex.Unlock()
	switch {
	case ok && now.Sub(known.read) < priceAge:
		return known.price, nil
	case ok && now.Sub(known.failed) < RetryPrice:
		return known.usable()
	}
	var node corev1.Node
	err := nodes.Get(ctx, client.ObjectKey{Name: name}, &node)
	switch {
	case err == nil:
		known = knownPrice{read: now}
		if price, priced := PriceOf(&node); priced {
			known.price = &price
		}
	case apierrors.IsNotFound(err):
		known = knownPrice{price: known.price, read: now}
	default:
		known.failed, known.why = now, fmt.Errorf("read the price of node %s: %w", name, err)
		log.FromContext(ctx).Info("The price of a node cannot be read: the cost is charged once it can", "node", name, "error", err.Error())
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.nodes == nil {
		p.nodes = map[string]knownPrice{}
	}
	maps.DeleteFunc(p.nodes, func(_ string, k knownPrice) bool {
		return now.Sub(k.read) > 24*time.Hour && now.Sub(k.failed) > 24*time.Hour
	})
	p.nodes[name] = known
	return known.usable()
}

func (k knownPrice) usable() (*Price, error) {
	if k.read.IsZero() {
		return nil, k.why
	}
	return k.price, nil
}
