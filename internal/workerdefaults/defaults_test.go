package workerdefaults_test

import (
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dcnlab/spot-training-operator/internal/workerdefaults"
)

// list makes one of names and amounts in turn.
func list(pairs ...string) corev1.ResourceList {
	if pairs == nil {
		return nil
	}
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func TestWhatAWorkerGetsBesideItsOwnResources(t *testing.T) {
	full := workerdefaults.Defaults{Requests: list("cpu", "1", "memory", "2Gi"), Limits: list("cpu", "2", "memory", "8Gi")}
	for name, test := range map[string]struct {
		defaults workerdefaults.Defaults
		spec     *corev1.ResourceRequirements
		given    *corev1.ResourceRequirements
		all      corev1.ResourceRequirements
	}{
		"nothing is set": {},
		"the job names none": {
			defaults: full, given: &corev1.ResourceRequirements{Requests: full.Requests, Limits: full.Limits},
			all: corev1.ResourceRequirements{Requests: full.Requests, Limits: full.Limits},
		},
		"the job names all": {
			defaults: full, spec: &corev1.ResourceRequirements{Limits: list("cpu", "500m", "memory", "64Gi")},
			all: corev1.ResourceRequirements{Limits: list("cpu", "500m", "memory", "64Gi")},
		},
		"a limit of the job is its request": {
			defaults: full, spec: &corev1.ResourceRequirements{Limits: list("memory", "1Gi")},
			given: &corev1.ResourceRequirements{Requests: list("cpu", "1"), Limits: list("cpu", "2")},
			all:   corev1.ResourceRequirements{Requests: list("cpu", "1"), Limits: list("cpu", "2", "memory", "1Gi")},
		},
		"a request above the default limit is the limit": {
			defaults: full, spec: &corev1.ResourceRequirements{Requests: list("cpu", "4", "memory", "4Gi")},
			given: &corev1.ResourceRequirements{Limits: list("cpu", "4", "memory", "8Gi")},
			all:   corev1.ResourceRequirements{Requests: list("cpu", "4", "memory", "4Gi"), Limits: list("cpu", "4", "memory", "8Gi")},
		},
		"other resources stay": {
			defaults: workerdefaults.Defaults{Limits: list("cpu", "2")}, spec: &corev1.ResourceRequirements{Limits: list("nvidia.com/gpu", "1")},
			given: &corev1.ResourceRequirements{Limits: list("cpu", "2")},
			all:   corev1.ResourceRequirements{Limits: list("cpu", "2", "nvidia.com/gpu", "1")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			given := test.defaults.For(test.spec)
			assert.True(t, equality.Semantic.DeepEqual(test.given, given), "%v", given)
			all := workerdefaults.With(test.spec, given)
			assert.True(t, equality.Semantic.DeepEqual(test.all, all), "%v", all)
		})
	}
}

func TestFlags(t *testing.T) {
	parse := func(arguments ...string) (*workerdefaults.Defaults, error) {
		d := &workerdefaults.Defaults{}
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		d.AddFlags(flags)
		if err := flags.Parse(arguments); err != nil {
			return d, err
		}
		if request := flags.Lookup("default-worker-requests"); request.Changed {
			assert.Equal(t, "cpu=500m,memory=2Gi", request.Value.String())
		}
		err := d.Validate()
		return d, err
	}
	t.Setenv("DEFAULT_WORKER_LIMITS", "memory=8Gi")
	d, err := parse("--default-worker-requests=memory=2Gi, cpu=500m")
	require.NoError(t, err)
	assert.True(t, equality.Semantic.DeepEqual(list("cpu", "500m", "memory", "2Gi"), d.Requests), "%v", d)
	assert.True(t, equality.Semantic.DeepEqual(list("memory", "8Gi"), d.Limits), "%v", d)

	for text, problem := range map[string]string{
		"nvidia.com/gpu=1": `"nvidia.com/gpu=1" names none of cpu, memory and ephemeral-storage`,
		"cpu":              `"cpu" has no amount above 0`,
		"cpu=0":            `"cpu=0" has no amount above 0`,
		"cpu=much":         `"cpu=much" has no amount above 0`,
	} {
		_, err := parse("--default-worker-limits=" + text)
		assert.ErrorContains(t, err, problem)
	}
	t.Setenv("DEFAULT_WORKER_REQUESTS", "memory=9Gi")
	_, err = parse()
	assert.EqualError(t, err, "--default-worker-requests: memory is 9Gi, above the limit of 8Gi in --default-worker-limits: "+
		"lower the request, or raise the limit")
	t.Setenv("DEFAULT_WORKER_LIMITS", "gpu=1")
	_, err = parse()
	assert.ErrorContains(t, err, `environment variable DEFAULT_WORKER_LIMITS: "gpu=1" names none of`)
}
