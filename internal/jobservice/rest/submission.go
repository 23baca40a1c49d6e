package rest

import (
	"cmp"
	"encoding/json"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// What may be submitted is what an AIJob may be, so that no job is accepted here that the API server would refuse later
// (TestSubmissionsAreAIJobs).
const (
	maxPriority   = 100
	maxImage      = 1024
	maxConfig     = 64 << 10 // as it goes into one environment variable, which the kernel bounds at 128 KiB
	maxQuantity   = 64
	maxMembers    = 1000
	maxTopology   = 316
	maxMultiplier = 10
)

var (
	jobTypes = []string{"inference", "training", "simulation", "evaluation"}
	noConfig = json.RawMessage("{}")
	// mostQuantity leaves room for sums in 64 bits.
	mostQuantity = resource.MustParse("1E")
)

// readJob reads a submitted job, and says what is wrong. Namespace and Submitter are left to the caller where they are not given.
func readJob(value []byte) (*jobs.Job, []detail) {
	job := &jobs.Job{Executor: jobs.Pool, Priority: 50, Config: noConfig, Retry: jobs.Retry{MaxRetries: 3, BackoffMultiplier: 2}}
	var seconds int
	details := readFields(value,
		required("job_type", "set it to inference, training, simulation or evaluation", asText(&job.Type, oneOf(jobTypes))),
		optional("priority", asInteger(0, maxPriority, &job.Priority)),
		optional("image", asText(&job.Image, image)),
		optional("config", asKept(maxConfig, &job.Config)),
		optional("resources", asResources(&job.Resources)),
		optional("gang", asGang(&job.Gang)),
		optional("timeout_seconds", asInteger(1, 366*24*3600, &seconds)),
		optional("retry_policy", asRetry(&job.Retry)),
		optional("namespace", asText(&job.Namespace, label)),
		optional("queue", asText(&job.Queue, label)),
	)
	if job.Gang.Enabled && job.Image == "" && details == nil {
		details = []detail{{"image", "is missing, but the pods of a gang need one: set it, or set gang.enabled to false"}}
	}
	if job.Image != "" {
		job.Executor = jobs.Kubernetes
	}
	job.Timeout = time.Duration(seconds) * time.Second
	job.Queue = cmp.Or(job.Queue, job.Type)
	return job, details
}

func image(text string) []detail {
	switch {
	case text == "":
		return wrong("is empty: name an image, or leave the field out for a job of pooled workers")
	case len(text) > maxImage:
		return wrong("has %d characters, but may have at most %d", len(text), maxImage)
	case !isVisible(text):
		return wrong("is not a valid image reference: write it for example as registry.example.com/team/model:v1")
	}
	return nil
}

func asResources(into *jobs.Resources) reader {
	return func(value []byte) []detail {
		return readFields(value,
			optional("cpu", asQuantity("500m or 4", &into.CPU)),
			optional("memory", asQuantity("512Mi or 16Gi", &into.Memory)),
			optional("gpu", asInteger(0, 1024, &into.GPU)),
		)
	}
}

// asQuantity reads a quantity of Kubernetes, which may be written as a number.
func asQuantity(example string, into *string) reader {
	return func(value []byte) []detail {
		var text string
		switch kind(value) {
		case "a text":
			text = unquote(value)
		case "a number":
			text = string(value)
		default:
			return wrongKind(value, "an amount as "+example)
		}
		if len(text) > maxQuantity {
			return wrong("has %d characters, but may have at most %d: write it for example as %s", len(text), maxQuantity, example)
		}
		quantity, err := resource.ParseQuantity(text)
		switch {
		case err != nil:
			return wrong("is %q, which is not a valid quantity: write it for example as %s", shorten(text), example)
		case quantity.Sign() < 0:
			return wrong("is %q, but must not be less than 0: write it for example as %s", text, example)
		case quantity.Cmp(mostQuantity) > 0:
			return wrong("is %q, which is more than 1E, and no node has that: write it for example as %s", text, example)
		}
		*into = text
		return nil
	}
}

func asGang(into *jobs.Gang) reader {
	const notGiven = -1
	return func(value []byte) []detail {
		gang := jobs.Gang{MinMembers: notGiven}
		details := readFields(value,
			optional("enabled", asBoolean(&gang.Enabled)),
			optional("min_members", asInteger(0, maxMembers, &gang.MinMembers)),
			optional("topology", asText(&gang.Topology, topology)),
		)
		switch {
		case details != nil:
			return details
		case gang.Enabled && gang.MinMembers == notGiven:
			return under("min_members", wrong("is missing: set it to the number of pods, 2 to %d", maxMembers))
		case gang.Enabled && gang.MinMembers < 2:
			return under("min_members",
				wrong("is %d, but a gang has at least 2 members: set it to the number of pods, or set gang.enabled to false", gang.MinMembers))
		case gang.Enabled:
			*into = gang
		case gang.MinMembers > 1:
			return under("enabled", wrong("is false, but min_members is %d: set it to true, or remove min_members", gang.MinMembers))
		case gang.Topology != "":
			return under("topology", wrong("has no use without a gang: set gang.enabled to true, or remove topology"))
		}
		return nil
	}
}

func topology(text string) []detail {
	if text == "" || len(text) <= maxTopology && labelKey.MatchString(text) {
		return nil
	}
	return wrong("is %q, which is not a valid node label: write it for example as topology.kubernetes.io/zone", shorten(text))
}

func asRetry(into *jobs.Retry) reader {
	return func(value []byte) []detail {
		return readFields(value,
			optional("max_retries", asInteger(0, 100, &into.MaxRetries)),
			optional("backoff_multiplier", asMultiplier(&into.BackoffMultiplier)),
		)
	}
}

func asMultiplier(into *float64) reader {
	return func(value []byte) []detail {
		if kind(value) != "a number" {
			return wrongKind(value, "a number")
		}
		multiplier, err := strconv.ParseFloat(string(value), 64)
		if err != nil || multiplier < 1 || multiplier > maxMultiplier {
			return wrong("is %s, but must be from 1 to %d: choose a number in that range", shorten(string(value)), maxMultiplier)
		}
		*into = multiplier
		return nil
	}
}

func asBatch(into *[]*jobs.Job) reader {
	return func(value []byte) []detail {
		tooMany := false
		details := readList(value, "jobs", func(i int, value []byte) []detail {
			if tooMany = i >= maxBatch; tooMany {
				return nil
			}
			job, details := readJob(value)
			*into = append(*into, job)
			return details
		})
		switch {
		case tooMany:
			return append(details, wrong("has more than %d jobs: send several batches", maxBatch)...)
		case len(*into) == 0 && details == nil:
			return wrong("is empty: send 1 to %d jobs", maxBatch)
		}
		return details
	}
}
