package spotinstancejob

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func built(b *builders.SpotInstanceJobBuilder) *batchv1.Job {
	return buildJob(b.Obj(), 1, 0, origin{}, 0, nil)
}

func TestTheJobOfAReplica(t *testing.T) {
	job := built(spotJob().On("t4").Template(func(s *batchv1.JobSpec) {
		s.BackoffLimit, s.TTLSecondsAfterFinished = ptr.To[int32](4), ptr.To[int32](60)
		s.Template.Labels = map[string]string{"team": "nlp", "training.dcnlab.com/replica": "7"}
	}))
	labels := map[string]string{
		"training.dcnlab.com/spot-instance-job": "bert", "training.dcnlab.com/replica": "1", "training.dcnlab.com/spot-instance-vm": "t4",
	}
	assert.Equal(t, "bert-1", job.Name)
	assert.Equal(t, labels, job.Labels)
	withTeam := maps.Clone(labels)
	withTeam["team"] = "nlp"
	assert.Equal(t, withTeam, job.Spec.Template.Labels)
	assert.Equal(t, "SpotInstanceJob", metav1.GetControllerOf(job).Kind)
	assert.Equal(t, int32(4), *job.Spec.BackoffLimit, "without checkpoints the Job controller tries again")
	assert.Equal(t, batchv1.Failed, *job.Spec.PodReplacementPolicy)
	assert.Nil(t, job.Spec.TTLSecondsAfterFinished, "the whole is kept so long, not each replica")

	job = built(spotJob().Checkpoints(hour))
	assert.Equal(t, int32(0), *job.Spec.BackoffLimit, "with checkpoints the operator does")
	job = built(spotJob().Checkpoints(hour).Template(func(s *batchv1.JobSpec) { s.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }))
	assert.Nil(t, job.Spec.BackoffLimit, "a container that is started again in its pod is the kubelet's business")
	assert.Nil(t, job.Spec.PodFailurePolicy)
}

func TestSpread(t *testing.T) {
	term := corev1.PodAffinityTerm{TopologyKey: "kubernetes.io/hostname", LabelSelector: &metav1.LabelSelector{
		MatchLabels: map[string]string{"training.dcnlab.com/spot-instance-job": "bert"},
		MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "training.dcnlab.com/replica", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"1"}},
		},
	}}
	required := &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}
	assert.Empty(t, cmp.Diff(required, built(spotJob().On("t4")).Spec.Template.Spec.Affinity.PodAntiAffinity))
	preferred := &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 100, PodAffinityTerm: term}}}
	assert.Empty(t, cmp.Diff(preferred, built(spotJob()).Spec.Template.Spec.Affinity.PodAntiAffinity))

	nodes := &corev1.NodeAffinity{}
	job := built(spotJob().Template(func(s *batchv1.JobSpec) { s.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: nodes} }))
	assert.Equal(t, nodes, job.Spec.Template.Spec.Affinity.NodeAffinity)
	assert.Empty(t, cmp.Diff(preferred, job.Spec.Template.Spec.Affinity.PodAntiAffinity), "that says nothing of other pods")
	own := &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}}
	job = built(spotJob().On("t4").Template(func(s *batchv1.JobSpec) { s.Template.Spec.Affinity = own }))
	assert.Equal(t, own, job.Spec.Template.Spec.Affinity, "the template's own word")
	job = built(spotJob().On("t4").Template(func(s *batchv1.JobSpec) {
		s.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{TopologyKey: "zone"}}
	}))
	assert.Nil(t, job.Spec.Template.Spec.Affinity, "the template's own word")
}

func TestDisruptions(t *testing.T) {
	action := func(job *batchv1.Job) batchv1.PodFailurePolicyAction {
		return job.Spec.PodFailurePolicy.Rules[0].Action
	}
	assert.Equal(t, batchv1.PodFailurePolicyActionFailJob, action(built(spotJob())))
	own := batchv1.PodFailurePolicyRule{Action: batchv1.PodFailurePolicyActionCount}
	job := built(spotJob().Template(func(s *batchv1.JobSpec) {
		s.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{own}}
	}))
	assert.Equal(t, batchv1.PodFailurePolicyActionFailJob, action(job))
	assert.Equal(t, own, job.Spec.PodFailurePolicy.Rules[1])
	several := func(s *batchv1.JobSpec) { s.Parallelism, s.Completions = ptr.To[int32](2), ptr.To[int32](2) }
	assert.Equal(t, batchv1.PodFailurePolicyActionIgnore, action(built(spotJob().Template(several))), "the Job controller replaces such a pod")
}

func TestAStartFromACheckpoint(t *testing.T) {
	b := spotJob().Checkpoints(hour).Spec(func(s *spotv1alpha1.SpotInstanceJobSpec) {
		s.CheckpointConfig.CheckpointRepoCredentialRef = &spotv1alpha1.SecretReference{Name: "pull"}
		s.JobTemplate.Spec.Template.Spec.Containers = []corev1.Container{
			{Name: "train", Image: "train:1", Command: []string{"train"}, ImagePullPolicy: corev1.PullNever}, {Name: "log", Image: "log:1"},
		}
	})
	from := origin{name: "c", images: map[string]string{"train": "r/x:c-train", "log": "r/x:c-log"}}
	pod := buildJob(b.Obj(), 0, 2, from, 1, []string{"a", "b"}).Spec.Template.Spec
	assert.Equal(t, "r/x:c-train", pod.Containers[0].Image)
	assert.Equal(t, []string{"train"}, pod.Containers[0].Command)
	assert.Equal(t, corev1.PullIfNotPresent, pod.Containers[0].ImagePullPolicy)
	assert.Equal(t, "r/x:c-log", pod.Containers[1].Image)
	assert.Equal(t, []string{"restored-from-checkpoint"}, pod.Containers[1].Command, "the image of a checkpoint has none of its own")
	assert.Equal(t, []corev1.LocalObjectReference{{Name: "pull"}}, pod.ImagePullSecrets)
	job := buildJob(b.Obj(), 0, 2, from, 1, []string{"a", "b"})
	assert.Equal(t, "bert-0-r2", job.Name)
	assert.Equal(t, map[string]string{
		annotationAttempt: "2", annotationFailures: "1", annotationStartedFrom: "c", annotationUnusable: "a,b",
	}, job.Annotations)
	assert.Equal(t, []string{"a", "b"}, unusable(job))
}

func TestStorage(t *testing.T) {
	b := spotJob().Checkpoints(hour).Spec(func(s *spotv1alpha1.SpotInstanceJobSpec) {
		s.CheckpointConfig.CheckpointStorage = &spotv1alpha1.CheckpointStorage{Type: "gcs", Bucket: "models", PathPrefix: "/bert/"}
		s.GCPCredentialsSecretRef = &spotv1alpha1.SecretReference{Name: "gcp"}
		s.JobTemplate.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "CHECKPOINT_BUCKET", Value: "mine"}}
	})
	environment := func(job *batchv1.Job) map[string]string {
		set := map[string]string{}
		for _, v := range job.Spec.Template.Spec.Containers[0].Env {
			set[v.Name] = v.Value
		}
		return set
	}
	job := built(b)
	assert.Equal(t, map[string]string{
		"SPOT_REPLICA": "1", "CHECKPOINT_STORAGE_TYPE": "gcs", "CHECKPOINT_BUCKET": "mine", "CHECKPOINT_PATH_PREFIX": "bert",
		"CHECKPOINT_STORAGE_URL":         "gs://models/bert",
		"GOOGLE_APPLICATION_CREDENTIALS": "/var/run/secrets/training.dcnlab.com/gcp/credentials.json",
	}, environment(job))
	assert.Equal(t, "gcp", job.Spec.Template.Spec.Volumes[0].Secret.SecretName)
	assert.Equal(t, "/var/run/secrets/training.dcnlab.com/gcp", job.Spec.Template.Spec.Containers[0].VolumeMounts[0].MountPath)

	job = built(b.Spec(func(s *spotv1alpha1.SpotInstanceJobSpec) { s.CheckpointConfig.CheckpointStorage.Type = "s3" }))
	assert.Equal(t, "s3://models/bert", environment(job)["CHECKPOINT_STORAGE_URL"])
	assert.Empty(t, job.Spec.Template.Spec.Volumes, "a key for Google is of no use for S3")
	assert.Equal(t, map[string]string{"SPOT_REPLICA": "1"}, environment(built(spotJob())))
}

func TestCapacity(t *testing.T) {
	unschedulable := func(w *world) {
		job := w.attempt(1, 0)
		pod := w.pod(job, "")
		pod.Status.Phase = corev1.PodPending
		pod.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/1 nodes"},
		}
	}
	vm := func(kind, reason string) *spotv1alpha1.SpotInstanceVM {
		return &spotv1alpha1.SpotInstanceVM{Status: spotv1alpha1.SpotInstanceVMStatus{Conditions: []metav1.Condition{
			{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: "told by the VM"},
		}}}
	}
	tests := map[string]struct {
		job             *builders.SpotInstanceJobBuilder
		vm              *spotv1alpha1.SpotInstanceVM
		capacity, ready string
		phase           spotv1alpha1.JobPhase
	}{
		"no instances are created":    {spotJob(), nil, "False Unschedulable", "True Ready", "Running"},
		"there is no SpotInstanceVM":  {spotJob().On("t4"), nil, "False SpotInstanceVMNotFound", "False SpotInstanceVMNotFound", "Provisioning"},
		"one is being created":        {spotJob().On("t4"), &spotv1alpha1.SpotInstanceVM{}, "False Provisioning", "True Ready", "Provisioning"},
		"the namespace may have none": {spotJob().On("t4"), vm("Allowed", "NamespaceNotAllowed"), "False NamespaceNotAllowed", "True Ready", "Provisioning"},
		"no zone has one":             {spotJob().On("t4"), vm("CapacityAvailable", "ZoneExhausted"), "False ZoneExhausted", "True Ready", "Provisioning"},
	}
	for title, test := range tests {
		t.Run(title, func(t *testing.T) {
			w := worldOf(test.job)
			w.vm = test.vm
			w.runs(0, 0, "a")
			unschedulable(w)
			status := plan(w.observed).status
			assert.Equal(t, test.capacity, conditionsOf(status)["CapacityAvailable"])
			assert.Equal(t, test.ready, conditionsOf(status)["Ready"])
			assert.Equal(t, test.phase, status.Phase)
		})
	}
}

func TestAPodThatNoSchedulerLooksAtIsToldInTime(t *testing.T) {
	silent := func(name string) string {
		return "pod bert-1-pod of replica 1: scheduler " + name + " has not looked at it for 1m0s: see whether it runs, or correct schedulerName in spec.jobTemplate"
	}
	for title, test := range map[string]struct {
		job             *builders.SpotInstanceJobBuilder
		after           time.Duration
		scheduler, node string
		capacity        string
		message         string
	}{
		"at first":                        {spotJob(), 59 * time.Second, "no-such", "", "False ReplicasStarting", "the pod of replica 1 is not placed yet"},
		"after a minute":                  {spotJob(), time.Minute, "no-such", "", "False SchedulerSilent", silent("no-such")},
		"after a minute, the default one": {spotJob(), time.Minute, "", "", "False SchedulerSilent", silent("default-scheduler")},
		"where instances are created":     {spotJob().On("t4"), time.Minute, "no-such", "", "False SchedulerSilent", silent("no-such")},
		"once it has a node":              {spotJob(), time.Hour, "no-such", "b", "True ReplicasPlaced", "every replica has a node"},
	} {
		t.Run(title, func(t *testing.T) {
			w := worldOf(test.job)
			w.vm = &spotv1alpha1.SpotInstanceVM{}
			w.runs(0, 0, "a")
			pod := w.pod(w.attempt(1, 0), test.node)
			pod.Spec.SchedulerName, pod.Status.Phase = test.scheduler, corev1.PodPending

			d := plan(w.at(test.after).observed)
			assert.Equal(t, test.capacity, conditionsOf(d.status)["CapacityAvailable"])
			assert.Equal(t, test.message, meta.FindStatusCondition(d.status.Conditions, "CapacityAvailable").Message)
			if test.after < time.Minute {
				assert.Equal(t, time.Minute-test.after, d.again, "then it is told")
			}
		})
	}
}
