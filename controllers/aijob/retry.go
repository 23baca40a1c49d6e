package aijob

import (
	"fmt"
	"hash/fnv"
	"math"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// Defaults of the API, for jobs that were stored without them.
const (
	defaultRetries        = 3
	defaultMultiplier     = 2
	defaultInitialBackoff = 10 * time.Second
	defaultMaxBackoff     = 10 * time.Minute
	// jitter is the share by which a pause is longer at most, so that jobs that failed together do not come back together.
	jitter = 0.1
)

// retriesUsed is the number of retries that count.
func retriesUsed(job *aiplatformv1alpha1.AIJob) int32 {
	before, err := strconv.ParseInt(job.Annotations[aiplatformv1alpha1.AnnotationRetriesBefore], 10, 32)
	if err != nil || before < 0 {
		before = 0
	}
	return max(job.Status.RetryCount-int32(before), 0)
}

// backoff is the pause before a retry; used is the number of retries before it.
func backoff(job *aiplatformv1alpha1.AIJob, used int32) time.Duration {
	policy := job.Spec.RetryPolicy
	first := ptr.Deref(policy.InitialBackoff, metav1.Duration{Duration: defaultInitialBackoff}).Duration
	longest := ptr.Deref(policy.MaxBackoff, metav1.Duration{Duration: defaultMaxBackoff}).Duration
	multiplier := policy.BackoffMultiplier
	if multiplier < 1 {
		multiplier = defaultMultiplier
	}
	pause := math.Min(float64(first)*math.Pow(multiplier, float64(used)), float64(longest))
	return jittered(job, time.Duration(pause))
}

// jittered is a pause with a jitter that is the same for the same try.
func jittered(job *aiplatformv1alpha1.AIJob, pause time.Duration) time.Duration {
	hash := fnv.New32a()
	_, _ = fmt.Fprintf(hash, "%s/%d", job.UID, attemptOf(&job.Status))
	return pause + time.Duration(float64(pause)*jitter*float64(hash.Sum32())/float64(math.MaxUint32))
}
