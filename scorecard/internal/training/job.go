// Package training starts and follows TrainingJobs that really train, made from the bundle's example.
package training

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/lab"
	"github.com/dcnlab/spot-training-operator/scorecard/internal/verdict"
)

// Patience is how long a test may take that trains once, on a small node that pulls the worker's image first.
const Patience = 5 * time.Minute

// Example is the bundle's example of a TrainingJob under a new name in the lab's namespace.
func Example(l *lab.Lab, test string) (*mlv1.TrainingJob, error) {
	example, err := l.Bundle.Example("TrainingJob")
	if err != nil {
		return nil, err
	}
	if example == nil {
		return nil, verdict.Failf("the annotation alm-examples has no TrainingJob")
	}
	job := &mlv1.TrainingJob{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(example.Object, job, true); err != nil {
		return nil, verdict.Failf("the example of a TrainingJob does not fit its API: %v", err)
	}
	return &mlv1.TrainingJob{
		ObjectMeta: metav1.ObjectMeta{Name: lab.Name(test), Namespace: l.Namespace, Labels: job.Labels, Annotations: job.Annotations},
		Spec:       job.Spec,
	}, nil
}

// Slow makes the job last at least its number of epochs times that of their steps times the pause, so that there is
// time to interfere. The training worker that comes with the operator knows the setting.
func Slow(job *mlv1.TrainingJob, epochs int32, pause time.Duration) {
	if job.Spec.Hyperparameters == nil {
		job.Spec.Hyperparameters = &mlv1.Hyperparameters{}
	}
	job.Spec.Hyperparameters.Epochs = &epochs
	job.Spec.Env = append(job.Spec.Env, corev1.EnvVar{
		Name: "STEP_DELAY_SECONDS", Value: strconv.FormatFloat(pause.Seconds(), 'f', -1, 64),
	})
}

// Checkpoints saves a checkpoint every so many epochs.
func Checkpoints(job *mlv1.TrainingJob, every int32) {
	if job.Spec.Checkpoint == nil {
		job.Spec.Checkpoint = &mlv1.Checkpoint{}
	}
	job.Spec.Checkpoint.Frequency = every
}

// Start creates the job. It is removed after the test, and so is the claim with its checkpoints.
func Start(ctx context.Context, l *lab.Lab, test string, job *mlv1.TrainingJob) error {
	l.Adopt(claim(job))
	return l.Create(ctx, test, job)
}

func claim(job *mlv1.TrainingJob) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: job.Name + "-checkpoints", Namespace: job.Namespace},
	}
}

// Claim is the claim with the job's checkpoints. That there is none is a Failure.
func Claim(ctx context.Context, l *lab.Lab, job *mlv1.TrainingJob) (*corev1.PersistentVolumeClaim, error) {
	found := claim(job)
	err := l.Get(ctx, client.ObjectKeyFromObject(found), found)
	if apierrors.IsNotFound(err) {
		return nil, verdict.Failf("PersistentVolumeClaim %s does not exist", found.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("read PersistentVolumeClaim %s: %w", found.Name, err)
	}
	return found, nil
}
