// Package cost works out what pods cost from the prices that their nodes carry. All of it is pure.
package cost

import (
	"cmp"
	"context"
	"maps"
	"math/big"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// defaultCurrency is that of prices that name none.
const defaultCurrency = "USD"

// gpu is the resource by which a node with GPUs is shared out.
const gpu = corev1.ResourceName("nvidia.com/gpu")

// Price is what a node costs, and what it has to share out.
type Price struct {
	// PerHour of the whole node.
	PerHour *big.Rat
	// Currency of PerHour.
	Currency string
	// Allocatable is what the pods of the node can request together.
	Allocatable corev1.ResourceList
}

// PriceOf reads the price of a node; nil when it carries none, or one that is no number or below 0.
func PriceOf(node *corev1.Node) *Price {
	value := func(name string) string { return cmp.Or(node.Annotations[name], node.Labels[name]) }
	text := value(mlv1.AnnotationPricePerHour)
	// A fraction or an exponent is no price: 1e999999 would not even fit into memory.
	if text == "" || len(text) > 32 || strings.Trim(text, "0123456789.") != "" {
		return nil
	}
	perHour, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil
	}
	return &Price{PerHour: perHour, Currency: cmp.Or(value(mlv1.AnnotationPriceCurrency), defaultCurrency), Allocatable: node.Status.Allocatable}
}

// Rate is what a pod with these requests costs per hour: the price of the node times the share of it that the pod takes.
func (p Price) Rate(requests corev1.ResourceList) *big.Rat {
	return new(big.Rat).Mul(p.PerHour, share(requests, p.Allocatable))
}

// share is the part of a node that others can no longer use: by GPUs, when the pod requests some, because they are what
// such a node is paid for; else by CPU or memory, whichever is more. It is at most 1.
func share(requests, allocatable corev1.ResourceList) *big.Rat {
	if amount, asks := requests[gpu]; asks && !amount.IsZero() {
		return part(amount, allocatable[gpu])
	}
	most := new(big.Rat)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if of := part(requests[name], allocatable[name]); of.Cmp(most) > 0 {
			most = of
		}
	}
	return most
}

func part(amount, of resource.Quantity) *big.Rat {
	whole := rational(of)
	if whole.Sign() <= 0 {
		return new(big.Rat)
	}
	result := new(big.Rat).Quo(rational(amount), whole)
	if one := big.NewRat(1, 1); result.Cmp(one) > 0 {
		return one
	}
	return result
}

// rational is a quantity in thousandths, which is all that CPU is measured in.
func rational(quantity resource.Quantity) *big.Rat {
	return big.NewRat(quantity.MilliValue(), 1000)
}

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
	// failed is when it could not be read; a price from before that stays good.
	failed time.Time
}

// Of returns the price of a node, nil when it has none; false when it was never read. The last price of a node that is gone, or cannot be
// read, stays good.
func (p *Prices) Of(ctx context.Context, nodes client.Reader, name string, now time.Time) (*Price, bool) {
	p.mutex.Lock()
	known := p.nodes[name]
	p.mutex.Unlock()
	if now.Sub(known.read) < priceAge || now.Sub(known.failed) < RetryPrice {
		return known.price, !known.read.IsZero()
	}
	var node corev1.Node
	err := nodes.Get(ctx, client.ObjectKey{Name: name}, &node)
	switch {
	case err == nil:
		known.price, known.read = PriceOf(&node), now
	case apierrors.IsNotFound(err):
		known.read = now
	default:
		known.failed = now
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
	return known.price, !known.read.IsZero()
}
