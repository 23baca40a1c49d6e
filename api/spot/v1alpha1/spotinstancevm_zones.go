package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Price is what an instance costs for an hour, as its user knows it: from the provider's price list or their own contract.
type Price struct {
	// zone that the price holds for. Default: every zone for which no other price is given.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]+-[a-z]+[0-9]+-[a-z]$`
	Zone string `json:"zone,omitempty"`

	// machineType that the price holds for. Default: every machine type for which no other price is given.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z][a-z0-9]*(-[a-z0-9]+)+$`
	MachineType string `json:"machineType,omitempty"`

	// provisioningModel that the price holds for: SPOT, the default, or STANDARD.
	// +kubebuilder:default=SPOT
	ProvisioningModel ProvisioningModel `json:"provisioningModel,omitempty"`

	// perHour is the price of a whole instance with its GPUs and its disk for an hour, as a decimal number with at most
	// six digits after the point, for example "0.35".
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^[0-9]{1,9}([.][0-9]{1,6})?$`
	PerHour string `json:"perHour,omitempty"`
}

// ZoneHistory is what was learned of a zone about spot instances of one machine type. Sums named recent count what happened
// a week ago as half, two weeks ago as a quarter, and so on: what providers take back changes with the seasons.
type ZoneHistory struct {
	// zone that this is about.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone,omitempty"`

	// machineType that this is about.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	MachineType string `json:"machineType,omitempty"`

	// preemptions is the number of instances that the provider took back.
	Preemptions int64 `json:"preemptions"`

	// instanceHours are the hours that instances ran until they were taken back or deleted, as a decimal number. Those that
	// run now are not in it.
	// +kubebuilder:validation:MaxLength=32
	InstanceHours string `json:"instanceHours,omitempty"`

	// recentPreemptions are the preemptions weighted by their age at time, as a decimal number.
	// +kubebuilder:validation:MaxLength=32
	RecentPreemptions string `json:"recentPreemptions,omitempty"`

	// recentInstanceHours are the instanceHours weighted by their age at time, as a decimal number.
	// +kubebuilder:validation:MaxLength=32
	RecentInstanceHours string `json:"recentInstanceHours,omitempty"`

	// ratePerHour is how many preemptions are to be expected for each hour of an instance, as a decimal number, as it was
	// estimated at time. A zone without a history is taken to be an average one: 0.1 preemptions per day.
	// +kubebuilder:validation:MaxLength=32
	RatePerHour string `json:"ratePerHour,omitempty"`

	// pricePerHour of a spot instance, from spec.prices.
	// +kubebuilder:validation:MaxLength=32
	PricePerHour string `json:"pricePerHour,omitempty"`

	// lastPreemptionTime is when the provider last said that it takes an instance back.
	LastPreemptionTime *metav1.Time `json:"lastPreemptionTime,omitempty"`

	// lastStockoutTime is when the zone last had no instance to give.
	LastStockoutTime *metav1.Time `json:"lastStockoutTime,omitempty"`

	// time up to which the sums count.
	Time *metav1.Time `json:"time,omitempty"`
}
