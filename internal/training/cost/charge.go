package cost

import (
	"math/big"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// decimals of an amount. Each charge is rounded to them: a job that is charged every 30 s for a year is wrong by a
// thousandth of a unit at most.
const decimals = 9

// Usage is the time that a pod holds its part of a node: from when the kubelet took it until its end, which is zero while it runs.
type Usage struct {
	Node       string
	Start, End time.Time
	// PerHour is what the pod costs; nil when its node has no price.
	PerHour  *big.Rat
	Currency string
}

// Charge returns the cost at a time: what was charged before, and for each usage the part of it since. It does the same
// however often it is called in between, because all it builds upon is the status. nil stands for a
// job that never ran on a node with a price.
func Charge(before *mlv1.CostStatus, usages []Usage, now time.Time) *mlv1.CostStatus {
	now = now.Truncate(time.Second) // as exact as a time in a status, and as those that the kubelet tells
	next := mlv1.CostStatus{}
	since := time.Time{}
	if before != nil {
		next = *before.DeepCopy()
		next.UnpricedWorkers = 0
		since = ptr.Deref(before.Time, metav1.Time{}).Time
	}
	total, rate := amount(next.Total), new(big.Rat)
	for _, usage := range usages {
		runs := usage.End.IsZero()
		if usage.PerHour == nil || (next.Currency != "" && usage.Currency != next.Currency) {
			if runs {
				next.UnpricedWorkers++
			}
			continue
		}
		next.Currency = usage.Currency
		if runs {
			rate.Add(rate, usage.PerHour)
		}
		total.Add(total, new(big.Rat).Mul(usage.PerHour, hours(usage, since, now)))
	}
	if next.Currency == "" {
		return nil
	}
	next.Total, next.PerHour, next.Time = text(total), text(rate), ptr.To(metav1.NewTime(latest(since, now)))
	return &next
}

// hours is how long a usage lasted between two times.
func hours(usage Usage, since, now time.Time) *big.Rat {
	end := now
	if !usage.End.IsZero() && usage.End.Before(now) {
		end = usage.End
	}
	seconds := int64(end.Sub(latest(usage.Start, since)) / time.Second)
	return big.NewRat(max(seconds, 0), 3600)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func amount(text string) *big.Rat {
	if value, ok := new(big.Rat).SetString(text); ok {
		return value
	}
	return new(big.Rat)
}

// text is an amount as a decimal number without zeros at its end.
func text(amount *big.Rat) string {
	return strings.TrimSuffix(strings.TrimRight(amount.FloatString(decimals), "0"), ".")
}
