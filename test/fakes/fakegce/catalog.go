package fakegce

import (
	"path"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/api/compute/v1"
)

// DefaultZones are the zones that exist unless a test names others.
var DefaultZones = []string{
	"us-central1-a", "us-central1-b", "us-central1-c", "us-central1-f",
	"us-east1-b", "us-east1-c", "europe-west4-a", "europe-west4-b",
}

// MachineType is the size of an instance.
type MachineType struct {
	CPUs, MemoryMB int64
	GPUType        string
	GPUs           int64
}

// Memory in MB for each CPU, of the families of general use.
var memoryPerCPU = map[string]map[string]float64{
	"n1": {"standard": 3840, "highmem": 6656, "highcpu": 921.6},
	"n2": {"standard": 4096, "highmem": 8192, "highcpu": 1024},
	"e2": {"standard": 4096, "highmem": 8192, "highcpu": 1024},
	"c3": {"standard": 4096, "highmem": 8192, "highcpu": 2048},
}

// GPUs that machine types of the accelerator families bring.
var bundled = map[string]MachineType{
	"g2-standard-4": {4, 16384, "nvidia-l4", 1}, "g2-standard-8": {8, 32768, "nvidia-l4", 1},
	"g2-standard-24": {24, 98304, "nvidia-l4", 2}, "g2-standard-48": {48, 196608, "nvidia-l4", 4},
	"a2-highgpu-1g": {12, 87040, "nvidia-tesla-a100", 1}, "a2-highgpu-2g": {24, 174080, "nvidia-tesla-a100", 2},
	"a2-highgpu-8g": {96, 696320, "nvidia-tesla-a100", 8}, "a3-highgpu-8g": {208, 1916928, "nvidia-h100-80gb", 8},
}

// GPUs that can be attached to instances of the family n1.
var attachable = []string{"nvidia-tesla-t4", "nvidia-tesla-p4", "nvidia-tesla-v100", "nvidia-tesla-p100"}

var general = regexp.MustCompile(`^([a-z]\d)-(standard|highmem|highcpu)-(1|2|4|8|16|32|64|96)$`)

// machineType finds a machine type by its name.
func machineType(name string) (MachineType, bool) {
	if found, ok := bundled[name]; ok {
		return found, true
	}
	parts := general.FindStringSubmatch(name)
	if len(parts) != 4 || memoryPerCPU[parts[1]] == nil {
		return MachineType{}, false
	}
	cpus, _ := strconv.ParseInt(parts[3], 10, 64) // a number, as the expression has it
	return MachineType{CPUs: cpus, MemoryMB: int64(float64(cpus) * memoryPerCPU[parts[1]][parts[2]])}, true
}

func (s *Server) getMachineType(c *call) (any, *refusal) {
	found, ok := machineType(c.name)
	if !ok {
		return nil, s.notFound(c, "machineTypes")
	}
	answer := &compute.MachineType{
		Kind: "compute#machineType", Name: c.name, Zone: c.zone, GuestCpus: found.CPUs, MemoryMb: found.MemoryMB,
		MaximumPersistentDisks: 128, SelfLink: s.link("zones", c.zone, "machineTypes", c.name),
	}
	if found.GPUs > 0 {
		answer.Accelerators = []*compute.MachineTypeAccelerators{{
			GuestAcceleratorType: found.GPUType, GuestAcceleratorCount: found.GPUs,
		}}
	}
	return answer, nil
}

// MissImage lets an image not exist, for example projects/p/global/images/gone.
func (s *Server) MissImage(image string) {
	defer s.enter()()
	s.images[image] = true
}

// link is the URL of something in the project.
func (s *Server) link(parts ...string) string {
	return "https://www.googleapis.com/compute/v1/projects/" + s.opts.Project + "/" + path.Join(parts...)
}

// quotaMetric of a type of GPU, for example NVIDIA_T4_GPUS.
func quotaMetric(gpuType string, spot bool) string {
	name := strings.TrimPrefix(strings.TrimPrefix(gpuType, "nvidia-"), "tesla-")
	metric := "NVIDIA_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "_GPUS"
	if spot {
		return "PREEMPTIBLE_" + metric
	}
	return metric
}
