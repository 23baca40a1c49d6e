package fakegce

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/api/compute/v1"
	"k8s.io/utils/ptr"
)

var (
	instanceName = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
	labelKey     = regexp.MustCompile(`^[a-z][-_a-z0-9]{0,62}$`)
	labelValue   = regexp.MustCompile(`^[-_a-z0-9]{0,63}$`)
	imageName    = regexp.MustCompile(`^(https://(www|compute)\.googleapis\.com/compute/v1/)?projects/[^/]+/global/images/(family/)?[^/]+$`)
)

func (s *Server) insertInstance(c *call) (any, *refusal) {
	wish := &compute.Instance{}
	if err := json.Unmarshal(c.body, wish); err != nil {
		return nil, refuse(http.StatusBadRequest, "parseError", "Parse Error: %v", err)
	}
	return s.once(c, wish.Name, func() (*operation, *refusal) {
		if no := s.checkInstance(c, wish); no != nil {
			return nil, no
		}
		if s.instances[key{c.zone, wish.Name}] != nil {
			return nil, refuse(http.StatusConflict, "alreadyExists",
				"The resource 'projects/%s/zones/%s/instances/%s' already exists", s.opts.Project, c.zone, wish.Name)
		}
		instance := s.newInstance(c.zone, wish)
		op := s.newOperation(instance, "insert", s.email())
		s.provision(instance, op)
		return op, nil
	})
}

// newInstance fills in what the provider does; s.mu is held.
func (s *Server) newInstance(zone string, wish *compute.Instance) *instance {
	now := s.clock.Now()
	i := &instance{
		zone: zone, sent: sent[compute.Instance]{resource: wish}, number: s.nextID(), created: now,
		guest: map[string]string{}, changed: make(chan struct{}),
	}
	wish.Kind, wish.Id, wish.Status = "compute#instance", i.number, "PROVISIONING"
	wish.CreationTimestamp = timestamp(now)
	wish.Zone = s.link("zones", zone)
	wish.SelfLink = s.link("zones", zone, "instances", wish.Name)
	wish.MachineType = s.link("zones", zone, "machineTypes", path.Base(wish.MachineType))
	if wish.Scheduling == nil {
		wish.Scheduling = &compute.Scheduling{}
	}
	wish.Scheduling.ProvisioningModel = cmp.Or(wish.Scheduling.ProvisioningModel, "STANDARD")
	wish.Scheduling.Preemptible = wish.Scheduling.ProvisioningModel == "SPOT"
	s.addresses++
	internal := fmt.Sprintf("10.128.%d.%d", s.addresses>>8&255, s.addresses&255)
	external := fmt.Sprintf("198.18.%d.%d", s.addresses>>8&255, s.addresses&255)
	if s.opts.Address != nil {
		internal, external = s.opts.Address(wish.Name)
	}
	for n, network := range wish.NetworkInterfaces {
		network.Name = fmt.Sprintf("nic%d", n)
		network.NetworkIP = internal
		for _, access := range network.AccessConfigs {
			access.NatIP = external
		}
	}
	s.instances[key{zone, wish.Name}] = i
	s.history = append(s.history, i)
	return i
}

// provision plans the first part of an instance's life; s.mu is held.
func (s *Server) provision(i *instance, op *operation) {
	now := s.clock.Now()
	s.after(now, s.vary(s.opts.Latency.Accept), op.start)
	s.after(now, s.vary(s.opts.Latency.Provision), func(now time.Time) {
		if i.leaving || i.gone {
			op.fail(now, http.StatusConflict, &compute.OperationErrorErrors{
				Code: "RESOURCE_NOT_READY", Message: "The instance was deleted while it was being created.",
			})
			return
		}
		if problem := s.overQuota(i); problem != nil {
			s.remove(i, now)
			op.fail(now, http.StatusForbidden, problem)
			return
		}
		if problem := s.outOfStock(i); problem != nil {
			s.remove(i, now)
			op.fail(now, http.StatusServiceUnavailable, problem)
			return
		}
		i.granted = true
		i.status("STAGING")
		s.after(now, s.vary(s.opts.Latency.Stage), func(now time.Time) {
			if i.leaving || i.gone {
				op.finish(now)
				return
			}
			i.running = now
			i.set(func(r *compute.Instance) { r.Status, r.LastStartTimestamp = "RUNNING", timestamp(now) })
			op.finish(now)
			i.notify()
			s.tell(s.opts.Hooks.OnRunning, i)
			s.planPreemption(i, now)
		})
	})
}

// planPreemption takes an instance back by chance some time; s.mu is held.
func (s *Server) planPreemption(i *instance, now time.Time) {
	if s.opts.PreemptionsPerHour <= 0 || !i.spot() {
		return
	}
	life := time.Duration(s.random.ExpFloat64() / s.opts.PreemptionsPerHour * float64(time.Hour))
	s.after(now, life, func(now time.Time) { s.preempt(i, now) })
}

// checkInstance refuses what Google refuses at once, though the discovery document allows it.
func (s *Server) checkInstance(c *call, wish *compute.Instance) *refusal {
	machine, ok := machineType(path.Base(wish.MachineType))
	if !ok || !strings.Contains(wish.MachineType, "zones/"+c.zone+"/machineTypes/") {
		return invalid("resource.machineType", wish.MachineType, "The referenced resource does not exist.")
	}
	if len(wish.NetworkInterfaces) == 0 {
		return invalid("resource.networkInterfaces", "", "At least one network interface is required.")
	}
	if len(wish.Labels) > 64 {
		return invalid("resource.labels", "", "Too many labels.")
	}
	for name, value := range wish.Labels {
		if !labelKey.MatchString(name) || !labelValue.MatchString(value) {
			return invalid("resource.labels", name+"="+value, "Labels are lower case letters, digits, _ and -, at most 63.")
		}
	}
	for _, tag := range ptr.Deref(wish.Tags, compute.Tags{}).Items {
		if !instanceName.MatchString(tag) {
			return invalid("resource.tags.items[0]", tag, "Must be a match of regex '%s'", instanceName)
		}
	}
	return cmp.Or(s.checkDisks(wish), checkMetadata(wish), checkScheduling(wish, machine))
}

func invalid(field, value, format string, args ...any) *refusal {
	return refuse(http.StatusBadRequest, "invalid", "Invalid value for field '%s': '%s'. %s", field, value, fmt.Sprintf(format, args...))
}

func (s *Server) checkDisks(wish *compute.Instance) *refusal {
	boots := 0
	for n, disk := range wish.Disks {
		field := fmt.Sprintf("resource.disks[%d]", n)
		if disk.Boot {
			boots++
		}
		parameters := disk.InitializeParams
		switch {
		case parameters == nil && disk.Source == "":
			return invalid(field, "", "A disk needs a source or parameters.")
		case parameters == nil:
		case !imageName.MatchString(parameters.SourceImage):
			return invalid(field+".initializeParams.sourceImage", parameters.SourceImage, "The URL is malformed.")
		case s.images[parameters.SourceImage]:
			return refuse(http.StatusNotFound, "notFound", "The resource '%s' was not found", parameters.SourceImage)
		case parameters.DiskSizeGb != 0 && parameters.DiskSizeGb < 10:
			return invalid(field+".initializeParams.diskSizeGb", fmt.Sprint(parameters.DiskSizeGb),
				"Requested disk size cannot be smaller than the image size (10 GB)")
		case parameters.DiskType != "" && !strings.Contains(parameters.DiskType, "/diskTypes/"):
			return invalid(field+".initializeParams.diskType", parameters.DiskType, "The URL is malformed.")
		}
	}
	if boots != 1 {
		return invalid("resource.disks", "", "Exactly one boot disk is required.")
	}
	return nil
}

func checkMetadata(wish *compute.Instance) *refusal {
	total := 0
	seen := map[string]bool{}
	for _, item := range ptr.Deref(wish.Metadata, compute.Metadata{}).Items {
		if seen[item.Key] {
			return invalid("resource.metadata", item.Key, "Metadata has duplicate key")
		}
		seen[item.Key] = true
		size := len(ptr.Deref(item.Value, ""))
		total += len(item.Key) + size
		if size > 256<<10 {
			return invalid("resource.metadata.items", item.Key, "Value is too large: maximum size is 262144 characters.")
		}
	}
	if total > 512<<10 {
		return invalid("resource.metadata.items", "", "Metadata size is too large: maximum size is 524288 characters.")
	}
	return nil
}

func checkScheduling(wish *compute.Instance, machine MachineType) *refusal {
	scheduling := cmp.Or(wish.Scheduling, &compute.Scheduling{})
	spot := scheduling.ProvisioningModel == "SPOT"
	migrates := scheduling.OnHostMaintenance != "TERMINATE"
	gpus := machine.GPUs
	for _, gpu := range wish.GuestAccelerators {
		gpus += gpu.AcceleratorCount
		kind := path.Base(gpu.AcceleratorType)
		if !slices.Contains(attachable, kind) || !strings.HasPrefix(path.Base(wish.MachineType), "n1-") {
			return refuse(http.StatusBadRequest, "badRequest",
				"[%s, %s] features are not compatible for creating instance.", path.Base(wish.MachineType), kind)
		}
		if !slices.Contains([]int64{1, 2, 4, 8}, gpu.AcceleratorCount) {
			return refuse(http.StatusBadRequest, "badRequest", "The number of GPU cards and vCPU cores do not match.")
		}
	}
	switch {
	case spot && ptr.Deref(scheduling.AutomaticRestart, false):
		return invalid("resource.scheduling", "", "Scheduling must have automaticRestart be false for a spot instance.")
	case spot && scheduling.OnHostMaintenance == "MIGRATE":
		return invalid("resource.scheduling", "", "Scheduling must have onHostMaintenance be TERMINATE for a spot instance.")
	case !spot && scheduling.InstanceTerminationAction != "":
		return invalid("resource.scheduling.instanceTerminationAction", scheduling.InstanceTerminationAction,
			"You cannot specify a termination action for a VM instance that has the standard provisioning model.")
	case gpus > 0 && !spot && migrates:
		return refuse(http.StatusBadRequest, "badRequest", "Instances with guest accelerators do not support live migration.")
	}
	return nil
}
