package gcp

import (
	"context"

	"github.com/dcnlab/spot-training-operator/internal/cloud"
)

// Shape reads what a machine type offers to pods. It is asked for once: machine types do not change.
func (p *Provider) Shape(ctx context.Context, zone, machineType string) (cloud.Shape, error) {
	at := [...]string{zone, machineType}
	if known, ok := p.shapes.Load(at); ok {
		return known.(cloud.Shape), nil
	}
	found, err := ask(ctx, p, aboutCatalog, p.service.MachineTypes.Get(p.project, zone, machineType).
		Fields("guestCpus,memoryMb,accelerators(guestAcceleratorCount)").Context(ctx).Do)
	if err != nil {
		return cloud.Shape{}, err
	}
	shape := cloud.Shape{MilliCPU: found.GuestCpus * 1000, MemoryBytes: found.MemoryMb << 20}
	for _, accelerator := range found.Accelerators {
		shape.GPUs += int32(accelerator.GuestAcceleratorCount) //nolint:gosec // the GPUs of a machine type
	}
	p.shapes.Store(at, shape)
	return shape, nil
}
