// Package cost works out what pods cost from the prices that their nodes carry. All of it is pure.
package cost

import (
	"cmp"
	"math/big"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

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

// PriceOf reads the price of a node; false when it carries none, or one that is no number or below 0.
func PriceOf(node *corev1.Node) (Price, bool) {
	value := func(name string) string { return cmp.Or(node.Annotations[name], node.Labels[name]) }
	text := value(mlv1.AnnotationPricePerHour)
	// A fraction or an exponent is no price: 1e999999 would not even fit into memory.
	if text == "" || len(text) > 32 || strings.Trim(text, "0123456789.") != "" {
		return Price{}, false
	}
	perHour, ok := new(big.Rat).SetString(text)
	if !ok {
		return Price{}, false
	}
	return Price{
		PerHour: perHour, Currency: cmp.Or(value(mlv1.AnnotationPriceCurrency), defaultCurrency), Allocatable: node.Status.Allocatable,
	}, true
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
