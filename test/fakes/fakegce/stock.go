package fakegce

import (
	"fmt"
	"maps"
	"path"
	"slices"

	"google.golang.org/api/compute/v1"
)

// Stock says how many instances of a kind a zone still gives.
type Stock struct {
	Zone string
	// Model (SPOT or STANDARD) chooses the kind; empty for all.
	Model string
	// MachineType chooses it, too; empty for all.
	MachineType string
	// Left is how many more instances of it there may be.
	Left int
	// Details makes the error ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS.
	Details bool
}

// SetStock limits the instances of a kind; a later call for the same kind replaces an earlier one.
func (s *Server) SetStock(stock Stock) {
	defer s.enter()()
	s.stock = slices.DeleteFunc(s.stock, func(known *Stock) bool {
		return known.Zone == stock.Zone && known.Model == stock.Model && known.MachineType == stock.MachineType
	})
	s.stock = append(s.stock, &stock)
}

// StockOut lets zones have nothing to give.
func (s *Server) StockOut(zones ...string) {
	for _, zone := range zones {
		s.SetStock(Stock{Zone: zone})
	}
}

// Restock lifts all limits of zones.
func (s *Server) Restock(zones ...string) {
	defer s.enter()()
	s.stock = slices.DeleteFunc(s.stock, func(known *Stock) bool { return slices.Contains(zones, known.Zone) })
}

type quotaKey struct{ region, metric string }

// SetQuota limits a metric in a region: INSTANCES, CPUS, PREEMPTIBLE_CPUS, NVIDIA_T4_GPUS, PREEMPTIBLE_NVIDIA_T4_GPUS
// and the like. A limit below 0 lifts it.
func (s *Server) SetQuota(region, metric string, limit float64) {
	defer s.enter()()
	if limit < 0 {
		delete(s.quotas, quotaKey{region, metric})
		return
	}
	s.quotas[quotaKey{region, metric}] = limit
}

// usage of an instance, by metric.
func (i *instance) usage() map[string]float64 {
	machine, _ := machineType(path.Base(i.resource.MachineType))
	cpus := "CPUS"
	if i.spot() {
		cpus = "PREEMPTIBLE_CPUS"
	}
	used := map[string]float64{"INSTANCES": 1, cpus: float64(machine.CPUs)}
	if machine.GPUs > 0 {
		used[quotaMetric(machine.GPUType, i.spot())] += float64(machine.GPUs)
	}
	for _, gpu := range i.resource.GuestAccelerators {
		used[quotaMetric(path.Base(gpu.AcceleratorType), i.spot())] += float64(gpu.AcceleratorCount)
	}
	return used
}

// overQuota says which quota an instance that is being provisioned exceeds; s.mu is held.
func (s *Server) overQuota(i *instance) *compute.OperationErrorErrors {
	region := regionOf(i.zone)
	usage := i.usage()
	for _, metric := range slices.Sorted(maps.Keys(usage)) {
		wanted := usage[metric]
		limit, limited := s.quotas[quotaKey{region, metric}]
		if !limited {
			continue
		}
		used := wanted
		for _, other := range s.instances {
			if other != i && other.granted && regionOf(other.zone) == region && other.resource.Status != "TERMINATED" {
				used += other.usage()[metric]
			}
		}
		if used > limit {
			return &compute.OperationErrorErrors{
				Code:    "QUOTA_EXCEEDED",
				Message: fmt.Sprintf("Quota '%s' exceeded.  Limit: %.1f in region %s.", metric, limit, region),
			}
		}
	}
	return nil
}

// outOfStock takes an instance from the stock of its zone, or says that there is none; s.mu is held.
func (s *Server) outOfStock(i *instance) *compute.OperationErrorErrors {
	var counted []*Stock
	for _, stock := range s.stock {
		if !stock.covers(i) {
			continue
		}
		if stock.Left > 0 {
			counted = append(counted, stock)
			continue
		}
		exhausted := &compute.OperationErrorErrors{
			Code: "ZONE_RESOURCE_POOL_EXHAUSTED",
			Message: fmt.Sprintf("The zone 'projects/%s/zones/%s' does not have enough resources available to fulfill "+
				"the request.  Try a different zone, or try again later.", s.opts.Project, i.zone),
		}
		if stock.Details {
			exhausted.Code += "_WITH_DETAILS"
			exhausted.Message += fmt.Sprintf(" '(resource type:compute)'. A %s VM instance is currently unavailable in the %s zone.",
				path.Base(i.resource.MachineType), i.zone)
		}
		return exhausted
	}
	for _, stock := range counted {
		stock.Left--
	}
	return nil
}

func (k *Stock) covers(i *instance) bool {
	return (k.Zone == "" || k.Zone == i.zone) && (k.Model == "" || (k.Model == "SPOT") == i.spot()) &&
		(k.MachineType == "" || k.MachineType == path.Base(i.resource.MachineType))
}
