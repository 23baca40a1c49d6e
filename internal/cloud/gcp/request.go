package gcp

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/api/compute/v1"
	"google.golang.org/api/googleapi"

	"github.com/dcnlab/spot-training-operator/internal/cloud"
)

// bundledGPUs are the families of machine types that bring accelerators: like instances to which GPUs are attached, they
// cannot be moved to another host while they run.
var bundledGPUs = regexp.MustCompile(`^(a[234]x?|g[24]|ct[0-9]+[a-z]*)-`)

// instanceRequest is a wish in the words of Compute Engine.
func instanceRequest(project string, spec cloud.InstanceSpec) *compute.Instance {
	zone := "projects/" + project + "/zones/" + spec.Zone
	instance := &compute.Instance{
		Name:        spec.Name,
		MachineType: "zones/" + spec.Zone + "/machineTypes/" + spec.MachineType,
		Disks: []*compute.AttachedDisk{{
			Boot: true,
			// A disk that outlives its instance costs money and is not found again.
			AutoDelete: true,
			InitializeParams: &compute.AttachedDiskInitializeParams{
				SourceImage: spec.Image,
				DiskSizeGb:  spec.DiskGB,
				Labels:      maps.Clone(spec.Labels),
			},
		}},
		NetworkInterfaces: []*compute.NetworkInterface{networkInterface(spec)},
		Scheduling:        scheduling(spec),
		Labels:            maps.Clone(spec.Labels),
		Metadata:          metadata(spec.Metadata),
	}
	if spec.DiskType != "" {
		instance.Disks[0].InitializeParams.DiskType = zone + "/diskTypes/" + spec.DiskType
	}
	if spec.GPUs > 0 {
		instance.GuestAccelerators = []*compute.AcceleratorConfig{{
			AcceleratorType:  zone + "/acceleratorTypes/" + spec.GPUType,
			AcceleratorCount: int64(spec.GPUs),
		}}
	}
	if len(spec.NetworkTags) > 0 {
		instance.Tags = &compute.Tags{Items: slices.Clone(spec.NetworkTags)}
	}
	if spec.ServiceAccount != "" {
		// What the account may do is for its roles to say; scopes are an older way to narrow that down.
		instance.ServiceAccounts = []*compute.ServiceAccount{{
			Email: spec.ServiceAccount, Scopes: []string{compute.CloudPlatformScope},
		}}
	}
	return instance
}

// scheduling says that nothing brings the instance back once it is off: what it was is replaced by another one.
func scheduling(spec cloud.InstanceSpec) *compute.Scheduling {
	s := &compute.Scheduling{ProvisioningModel: "STANDARD", AutomaticRestart: googleapi.Bool(false)}
	if spec.Spot {
		s.ProvisioningModel = "SPOT"
		// A stopped instance would keep its disk, and its costs.
		s.InstanceTerminationAction = "DELETE"
	}
	if spec.Spot || spec.GPUs > 0 || bundledGPUs.MatchString(spec.MachineType) {
		s.OnHostMaintenance = "TERMINATE"
	}
	return s
}

func networkInterface(spec cloud.InstanceSpec) *compute.NetworkInterface {
	network := spec.Network
	switch {
	case network == "":
		network = "global/networks/default"
	case !strings.Contains(network, "/"):
		network = "global/networks/" + network
	}
	subnetwork := spec.Subnetwork
	if subnetwork != "" && !strings.Contains(subnetwork, "/") {
		subnetwork = "regions/" + regionOf(spec.Zone) + "/subnetworks/" + subnetwork
	}
	return &compute.NetworkInterface{
		Network:    network,
		Subnetwork: subnetwork,
		// An address of the outside, so that the node can pull images in a network without address translation.
		AccessConfigs: []*compute.AccessConfig{{Name: "External NAT", Type: "ONE_TO_ONE_NAT"}},
	}
}

// metadata in a fixed order. Guest attributes are how an instance tells its host keys.
func metadata(values map[string]string) *compute.Metadata {
	all := map[string]string{"enable-guest-attributes": "TRUE"}
	maps.Copy(all, values)
	m := &compute.Metadata{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		value := all[name]
		m.Items = append(m.Items, &compute.MetadataItems{Key: name, Value: &value})
	}
	return m
}

// regionOf a zone: us-central1 of us-central1-a.
func regionOf(zone string) string {
	return zone[:max(strings.LastIndex(zone, "-"), 0)]
}
