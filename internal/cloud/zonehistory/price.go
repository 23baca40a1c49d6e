package zonehistory

import (
	"cmp"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// defaultCurrency is that of prices that name none.
const defaultCurrency = "USD"

// Price is what the spec says that an instance costs in a zone; false when it says nothing of it. A price for the zone goes
// before one for all zones, and then one for the machine type before one for all.
func Price(
	vm *spotv1alpha1.SpotInstanceVM, machineType, zone string, model spotv1alpha1.ProvisioningModel,
) (perHour, currency string, ok bool) {
	closest := -1
	for _, price := range vm.Spec.Prices {
		if cmp.Or(price.ProvisioningModel, spotv1alpha1.ProvisioningSpot) != cmp.Or(model, spotv1alpha1.ProvisioningSpot) ||
			cmp.Or(price.Zone, zone) != zone || cmp.Or(price.MachineType, machineType) != machineType {
			continue
		}
		fit := 0
		if price.Zone != "" {
			fit += 2
		}
		if price.MachineType != "" {
			fit++
		}
		if fit > closest {
			closest, perHour, ok = fit, price.PerHour, true
		}
	}
	if !ok {
		return "", "", false
	}
	return perHour, cmp.Or(vm.Spec.PriceCurrency, defaultCurrency), true
}

// NodeAnnotations say on the node of an instance what it costs, so that the cost of jobs can be worked out; nil when no
// price is known.
func NodeAnnotations(vm *spotv1alpha1.SpotInstanceVM, machineType, zone string, model spotv1alpha1.ProvisioningModel) map[string]string {
	perHour, currency, ok := Price(vm, machineType, zone, model)
	if !ok {
		return nil
	}
	return map[string]string{mlv1.AnnotationPricePerHour: perHour, mlv1.AnnotationPriceCurrency: currency}
}
