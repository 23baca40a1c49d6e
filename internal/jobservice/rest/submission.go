package rest

import (
	"encoding/json"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// What may be submitted is what an AIJob may be, so that no job is accepted here that the API server would refuse later
// (TestSubmissionsAreAIJobs).
const (
	defaultPriority   = 50
	maxPriority       = 100
	maxImage          = 1024
	maxConfig         = 64 << 10 // as it goes into one environment variable, which the kernel bounds at 128 KiB
	maxQuantity       = 64
	maxGPUs           = 1024
	maxMembers        = 1000
	maxTopology       = 316
	maxTimeoutSeconds = 366 * 24 * 3600
	maxRetries        = 100
	defaultRetries    = 3
	maxMultiplier     = 10
	defaultMultiplier = 2
)

var (
	jobTypes  = []string{"inference", "training", "simulation", "evaluation"}
	jobFields = []string{"job_type", "priority", "image", "config", "resources", "gang", "timeout_seconds", "retry_policy", "namespace", "queue"}
	noConfig  = json.RawMessage("{}")
	// mostQuantity leaves room for sums in 64 bits.
	mostQuantity = resource.MustParse("1E")
)

// readJob reads a submitted job, an object, and reports what is wrong. Namespace and Submitter are left to the caller
// where they are not given.
func readJob(value []byte, r *report) *jobs.Job {
	job := &jobs.Job{
		Executor: jobs.Pool, Priority: defaultPriority, Config: noConfig,
		Retry: jobs.Retry{MaxRetries: defaultRetries, BackoffMultiplier: defaultMultiplier},
	}
	wrong := len(r.details)
	var number int64
	hasType := false
	r.object("", value, jobFields, func(name string, value []byte) {
		switch name {
		case "job_type":
			hasType = true
			job.Type = r.oneOf(name, value, jobTypes)
		case "priority":
			if r.integer(name, value, 0, maxPriority, &number) {
				job.Priority = int(number)
			}
		case "image":
			readImage(value, r, job)
		case "config":
			r.json(name, value, maxConfig, &job.Config)
		case "resources":
			readResources(value, r, job)
		case "gang":
			readGang(value, r, job)
		case "timeout_seconds":
			if r.integer(name, value, 1, maxTimeoutSeconds, &number) {
				job.Timeout = time.Duration(number) * time.Second
			}
		case "retry_policy":
			readRetry(value, r, job)
		case "namespace":
			r.label(name, value, &job.Namespace)
		case "queue":
			r.label(name, value, &job.Queue)
		}
	})
	if !hasType {
		r.add("job_type", "is missing: set it to inference, training, simulation or evaluation")
	}
	if job.Gang.Enabled && job.Image == "" && len(r.details) == wrong {
		r.add("image", "is missing, but the pods of a gang need one: set it, or set gang.enabled to false")
	}
	if job.Image != "" {
		job.Executor = jobs.Kubernetes
	}
	if job.Queue == "" {
		job.Queue = job.Type
	}
	return job
}

func readImage(value []byte, r *report, job *jobs.Job) {
	var image string
	if !r.text("image", value, &image) {
		return
	}
	switch {
	case image == "":
		r.add("image", "is empty: name an image, or leave the field out for a job of pooled workers")
	case len(image) > maxImage:
		r.add("image", "has %d characters, but may have at most %d", len(image), maxImage)
	case !isVisible(image):
		r.add("image", "is not a valid image reference: write it for example as registry.example.com/team/model:v1")
	default:
		job.Image = image
	}
}

// isVisible says that a text has only visible characters of ASCII.
func isVisible(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

func readResources(value []byte, r *report, job *jobs.Job) {
	if value[0] != '{' {
		r.wrongKind("resources", value, "an object with cpu, memory and gpu")
		return
	}
	r.object("resources.", value, []string{"cpu", "memory", "gpu"}, func(name string, value []byte) {
		switch name {
		case "cpu":
			readQuantity("resources.cpu", value, r, "500m or 4", &job.Resources.CPU)
		case "memory":
			readQuantity("resources.memory", value, r, "512Mi or 16Gi", &job.Resources.Memory)
		case "gpu":
			var gpus int64
			if r.integer("resources.gpu", value, 0, maxGPUs, &gpus) {
				job.Resources.GPU = int(gpus)
			}
		}
	})
}

// readQuantity reads a quantity of Kubernetes, which may be written as a number.
func readQuantity(field string, value []byte, r *report, example string, into *string) {
	var text string
	switch kind(value) {
	case "a text":
		text = unquote(value)
	case "a number":
		text = string(value)
	default:
		r.wrongKind(field, value, "an amount as "+example)
		return
	}
	if len(text) > maxQuantity {
		r.add(field, "has %d characters, but may have at most %d: write it for example as %s", len(text), maxQuantity, example)
		return
	}
	quantity, err := resource.ParseQuantity(text)
	switch {
	case err != nil:
		r.add(field, "is %q, which is not a valid quantity: write it for example as %s", shorten(text), example)
	case quantity.Sign() < 0:
		r.add(field, "is %q, but must not be less than 0: write it for example as %s", text, example)
	case quantity.Cmp(mostQuantity) > 0:
		r.add(field, "is %q, which is more than 1E, and no node has that: write it for example as %s", text, example)
	default:
		*into = text
	}
}

func readGang(value []byte, r *report, job *jobs.Job) {
	if value[0] != '{' {
		r.wrongKind("gang", value, "an object with enabled, min_members and topology")
		return
	}
	wrong := len(r.details)
	gang := jobs.Gang{}
	var number int64
	var hasMembers bool
	r.object("gang.", value, []string{"enabled", "min_members", "topology"}, func(name string, value []byte) {
		switch name {
		case "enabled":
			r.boolean("gang.enabled", value, &gang.Enabled)
		case "min_members":
			if r.integer("gang.min_members", value, 0, maxMembers, &number) {
				gang.MinMembers, hasMembers = int(number), true
			}
		case "topology":
			if !r.text("gang.topology", value, &gang.Topology) {
				return
			}
			if gang.Topology != "" && (len(gang.Topology) > maxTopology || !labelKey.MatchString(gang.Topology)) {
				r.add("gang.topology", "is %q, which is not a valid node label: write it for example as topology.kubernetes.io/zone", shorten(gang.Topology))
			}
		}
	})
	if len(r.details) > wrong {
		return
	}
	switch {
	case gang.Enabled && !hasMembers:
		r.add("gang.min_members", "is missing: set it to the number of pods, 2 to %d", maxMembers)
	case gang.Enabled && gang.MinMembers < 2:
		r.add("gang.min_members", "is %d, but a gang has at least 2 members: set it to the number of pods, or set gang.enabled to false", gang.MinMembers)
	case !gang.Enabled && gang.MinMembers > 1:
		r.add("gang.enabled", "is false, but min_members is %d: set it to true, or remove min_members", gang.MinMembers)
	case !gang.Enabled && gang.Topology != "":
		r.add("gang.topology", "has no use without a gang: set gang.enabled to true, or remove topology")
	case gang.Enabled:
		job.Gang = gang
	}
}

func readRetry(value []byte, r *report, job *jobs.Job) {
	if value[0] != '{' {
		r.wrongKind("retry_policy", value, "an object with max_retries and backoff_multiplier")
		return
	}
	r.object("retry_policy.", value, []string{"max_retries", "backoff_multiplier"}, func(name string, value []byte) {
		if name == "max_retries" {
			var retries int64
			if r.integer("retry_policy.max_retries", value, 0, maxRetries, &retries) {
				job.Retry.MaxRetries = int(retries)
			}
			return
		}
		if kind(value) != "a number" {
			r.wrongKind("retry_policy.backoff_multiplier", value, "a number")
			return
		}
		multiplier, err := strconv.ParseFloat(string(value), 64)
		if err != nil || multiplier < 1 || multiplier > maxMultiplier {
			r.add("retry_policy.backoff_multiplier", "is %s, but must be from 1 to %d: choose a number in that range", shorten(string(value)), maxMultiplier)
			return
		}
		job.Retry.BackoffMultiplier = multiplier
	})
}
