package trainingjob

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	"sigs.k8s.io/yaml"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/internal/webhook/review"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// aValidator asks a cluster whose answers the test makes up where a real API server would not give them in time or at
// all; what a real one answers is the matter of test/suites/webhook.
func aValidator(t *testing.T, answers interceptor.Funcs) *validator {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, mlv1.AddToScheme(scheme))
	return &validator{
		decoder: admission.NewDecoder(scheme), children: childrenOf, asker: review.Asker{
			Client: fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(answers).Build(), Patience: 50 * time.Millisecond,
			May: func(context.Context, authenticationv1.UserInfo, authorizationv1.ResourceAttributes) (bool, error) {
				return true, nil
			},
		},
	}
}

func manifest(t *testing.T, job *mlv1.TrainingJob) string {
	t.Helper()
	job.TypeMeta = metav1.TypeMeta{APIVersion: mlv1.GroupVersion.String(), Kind: "TrainingJob"}
	text, err := yaml.Marshal(job)
	require.NoError(t, err)
	return string(text)
}

// A slow API server delays no job for long: it is admitted, with a warning of what was not checked.
func TestASlowClusterAdmitsWithAWarning(t *testing.T) {
	waiting := interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			<-ctx.Done()
			return ctx.Err()
		},
		List: func(ctx context.Context, _ client.WithWatch, _ client.ObjectList, _ ...client.ListOption) error {
			<-ctx.Done()
			return ctx.Err()
		},
		Create: func(ctx context.Context, _ client.WithWatch, _ client.Object, _ ...client.CreateOption) error {
			<-ctx.Done()
			return ctx.Err()
		},
	}
	job := builders.TrainingJob("bert").Claim("data").Obj()
	v := aValidator(t, waiting)
	begin := time.Now()
	response := v.Handle(t.Context(), request(t, "CREATE", manifest(t, job), ""))
	assert.Less(t, time.Since(begin), 2*time.Second)
	assert.True(t, response.Allowed)
	assert.Equal(t, []string{"could not be checked, because the API server gave no answer: the ResourceQuotas of the namespace, " +
		"the LimitRanges of the namespace, spec.checkpoint.storage.claimName, whether the workers can be created: the conditions in the status will tell"}, response.Warnings)
}

// Nothing is asked that the user may not see, and nothing of it is told.
func TestWhatTheUserMayNotSeeIsNotAsked(t *testing.T) {
	job := builders.TrainingJob("bert").Claim("data").Obj()
	none := apierrors.NewNotFound(schema.GroupResource{}, "none")
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "batch", Resource: "jobs"}, "bert-training", errors.New("exceeded quota: secret figures"))
	var reads atomic.Int32
	v := aValidator(t, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			reads.Add(1)
			return none
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			reads.Add(1)
			return nil
		},
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return forbidden },
	})
	var mutex sync.Mutex
	var asked []string
	v.asker.May = func(_ context.Context, user authenticationv1.UserInfo, what authorizationv1.ResourceAttributes) (bool, error) {
		mutex.Lock()
		defer mutex.Unlock()
		assert.Equal(t, "alice", user.Username)
		asked = append(asked, strings.Join([]string{what.Verb, what.Group, what.Resource, what.Namespace, what.Name}, " "))
		return false, nil
	}
	r := request(t, "CREATE", manifest(t, job), "")
	r.UserInfo.Username = "alice"
	response := v.Handle(t.Context(), r)
	assert.True(t, response.Allowed)
	assert.Empty(t, response.Warnings)
	assert.Zero(t, reads.Load())
	assert.ElementsMatch(t, []string{
		"list  resourcequotas default ", "list  limitranges default ", "get  persistentvolumeclaims default data", "create batch jobs default ",
	}, asked)
}

// An answer that says nothing about the job refuses nothing.
func TestAnswersToTheTrial(t *testing.T) {
	jobs := schema.GroupResource{Group: "batch", Resource: "jobs"}
	invalid := apierrors.NewInvalid(schema.GroupKind{Group: "batch", Kind: "Job"}, "bert-training", nil)
	invalid.ErrStatus.Details.Causes = []metav1.StatusCause{{Field: "spec.template.spec.nodeSelector", Message: "Invalid value: bad label"}}
	tests := map[string]struct {
		answer   error
		refusal  string
		warnings []string
	}{
		"none against it":                 {nil, "", nil},
		"the name is taken":               {apierrors.NewAlreadyExists(jobs, "bert-training"), "", nil},
		"another webhook takes no trials": {apierrors.NewBadRequest("admission webhook does not support dry run"), "", nil},
		"forbidden for now": {apierrors.NewForbidden(jobs, "bert-training", assert.AnError), "",
			[]string{"the workers cannot be created at present: jobs.batch \"bert-training\" is forbidden"}},
		"the operator may not try": {apierrors.NewInternalError(assert.AnError), "", []string{"could not be checked, because the API server gave no answer: whether the workers can be created"}},
		"it can never be":          {invalid, "spec.scheduling.nodeSelector: Invalid value: bad label: correct it, because no worker could ever be created", nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var tried []*batchv1.Job
			v := aValidator(t, interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, object client.Object, options ...client.CreateOption) error {
					tried = append(tried, object.(*batchv1.Job))
					assert.Equal(t, []client.CreateOption{client.DryRunAll}, options)
					return test.answer
				},
			})
			response := v.Handle(t.Context(), request(t, "CREATE", manifest(t, builders.TrainingJob("bert").Obj()), ""))
			assert.Len(t, tried, 1)
			assert.Equal(t, test.refusal == "", response.Allowed)
			assert.Equal(t, test.refusal, response.Result.Message)
			assertWarnings(t, test.warnings, response.Warnings)
		})
	}
}

// Only updates that ask for more than before are checked, and none of them is tried out: a suspended job that is wrong
// stays changeable.
func TestUpdates(t *testing.T) {
	plain := builders.TrainingJob("bert").Elastic(1, 8).Workers(2)
	tests := map[string]struct {
		before, after *mlv1.TrainingJob
		checked       bool
	}{
		"more workers":             {plain.Obj(), builders.TrainingJob("bert").Elastic(1, 8).Workers(4).Obj(), true},
		"fewer workers":            {plain.Obj(), builders.TrainingJob("bert").Elastic(1, 8).Workers(1).Obj(), false},
		"another time to live":     {plain.Obj(), builders.TrainingJob("bert").Elastic(1, 8).Workers(2).TTL(60).Obj(), false},
		"suspended":                {plain.Obj(), builders.TrainingJob("bert").Elastic(1, 8).Workers(2).Suspended().Obj(), false},
		"resumed":                  {builders.TrainingJob("bert").Elastic(1, 8).Workers(2).Suspended().Obj(), plain.Obj(), true},
		"more workers, suspended":  {plain.Obj(), builders.TrainingJob("bert").Elastic(1, 8).Workers(4).Suspended().Obj(), false},
		"nothing":                  {plain.Obj(), plain.Obj(), false},
		"more workers, going away": {plain.Obj(), goingAway(builders.TrainingJob("bert").Elastic(1, 8).Workers(4).Obj()), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var asked, tried atomic.Int32
			v := aValidator(t, interceptor.Funcs{
				List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
					asked.Add(1)
					if quotas, ok := list.(*corev1.ResourceQuotaList); ok {
						quotas.Items = []corev1.ResourceQuota{quota(amounts("pods", "0"))}
					}
					return nil
				},
				Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error {
					tried.Add(1)
					return nil
				},
			})
			response := v.Handle(t.Context(), request(t, "UPDATE", manifest(t, test.after), manifest(t, test.before)))
			assert.True(t, response.Allowed)
			assert.Equal(t, test.checked, asked.Load() > 0)
			assert.Equal(t, test.checked, len(response.Warnings) > 0)
			assert.Zero(t, tried.Load())
		})
	}
}

func goingAway(job *mlv1.TrainingJob) *mlv1.TrainingJob {
	now := metav1.NewTime(builders.Noon)
	job.DeletionTimestamp = &now
	return job
}

// An object that no client could read is not stored, except in place of one that none can read either.
func TestUnreadableObjects(t *testing.T) {
	const good = `{apiVersion: ml.example.com/v1, kind: TrainingJob, metadata: {name: bert}, spec: {model: m, dataset: d, numWorkers: 1}}`
	const amount = `{apiVersion: ml.example.com/v1, kind: TrainingJob, metadata: {name: bert}, spec: {numWorkers: 1, resources: {limits: {rdma/hca: 1e1.5}}}}`
	const other = `{apiVersion: ml.example.com/v1, kind: TrainingJob, metadata: {name: bert}, spec: {numWorkers: 1, checkpoint: {interval: soon}}}`
	tests := map[string]struct {
		operation   admissionv1.Operation
		object, old string
		want        string
	}{
		"an amount":                  {"CREATE", amount, "", `spec.resources.limits[rdma/hca]: "1e1.5" is not an amount that Kubernetes can read: write for example 1, 500m or 32Gi`},
		"something else":             {"CREATE", other, "", `spec: cannot be read as a TrainingJob: `},
		"an amount in an update":     {"UPDATE", amount, good, `spec.resources.limits[rdma/hca]: "1e1.5"`},
		"what was unreadable before": {"UPDATE", other, amount, ""},
		"a good one of what was not": {"UPDATE", good, amount, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			response := aValidator(t, interceptor.Funcs{}).Handle(t.Context(), request(t, test.operation, test.object, test.old))
			require.Equal(t, test.want == "", response.Allowed)
			if test.want != "" {
				assert.Contains(t, response.Result.Message, test.want)
				assert.EqualValues(t, http.StatusUnprocessableEntity, response.Result.Code)
			}
		})
	}
}
