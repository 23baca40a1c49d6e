package trainingjob

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func amounts(pairs ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

func resources(requests, limits corev1.ResourceList) func(*mlv1.TrainingJobSpec) {
	return func(s *mlv1.TrainingJobSpec) {
		s.Resources = &corev1.ResourceRequirements{Requests: requests, Limits: limits}
	}
}

func quota(hard corev1.ResourceList, scopes ...corev1.ScopedResourceSelectorRequirement) corev1.ResourceQuota {
	q := corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "team"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
	if len(scopes) > 0 {
		q.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: scopes}
	}
	return q
}

func scope(name corev1.ResourceQuotaScope, operator corev1.ScopeSelectorOperator, values ...string) corev1.ScopedResourceSelectorRequirement {
	return corev1.ScopedResourceSelectorRequirement{ScopeName: name, Operator: operator, Values: values}
}

func TestQuotas(t *testing.T) {
	const toRaise = ", so that it can never run: ask for less, or raise the quota"
	gpus := builders.TrainingJob("bert").Workers(4).GPUs(2)
	memory := builders.TrainingJob("bert").Workers(3).Spec(resources(nil, amounts("memory", "2Gi", "cpu", "1")))
	plain := builders.TrainingJob("bert").Workers(2)
	priority := builders.TrainingJob("bert").Workers(2).Spec(func(s *mlv1.TrainingJobSpec) {
		s.Scheduling = &mlv1.Scheduling{Priority: "high"}
	})
	tests := map[string]struct {
		job    *builders.TrainingJobBuilder
		quota  corev1.ResourceQuota
		ranges []corev1.LimitRange
		want   []string
	}{
		"room for all GPUs": {job: gpus, quota: quota(amounts("requests.nvidia.com/gpu", "8"))},
		"too few GPUs": {job: gpus, quota: quota(amounts("requests.nvidia.com/gpu", "4")), want: []string{
			"spec.gpusPerWorker: the job needs 8 of requests.nvidia.com/gpu in all, but ResourceQuota team allows 4" + toRaise}},
		"too little memory by requests, which follow the limits": {job: memory, quota: quota(amounts("requests.memory", "4Gi", "limits.cpu", "3")), want: []string{
			"spec.resources: the job needs 6Gi of requests.memory in all, but ResourceQuota team allows 4Gi" + toRaise}},
		"the short name means requests": {job: memory, quota: quota(amounts("cpu", "2")), want: []string{
			"spec.resources: the job needs 3 of cpu in all, but ResourceQuota team allows 2" + toRaise}},
		"too few pods": {job: plain, quota: quota(amounts("pods", "1", "count/pods", "1")), want: []string{
			"spec.numWorkers: the job needs 2 of count/pods in all, but ResourceQuota team allows 1" + toRaise,
			"spec.numWorkers: the job needs 2 of pods in all, but ResourceQuota team allows 1" + toRaise}},
		"too few Services": {job: plain, quota: quota(amounts("services", "1", "count/configmaps", "1", "count/jobs.batch", "1")), want: []string{
			"metadata.namespace: the job needs 2 of services in all, but ResourceQuota team allows 1" + toRaise}},
		"no room for the claim": {job: builders.TrainingJob("bert").Checkpoints().Spec(func(s *mlv1.TrainingJobSpec) {
			s.Checkpoint.Storage.StorageClassName = ptr.To("fast")
		}), quota: quota(amounts("requests.storage", "5Gi", "fast.storageclass.storage.k8s.io/requests.storage", "20Gi", "persistentvolumeclaims", "1")), want: []string{
			"spec.checkpoint.storage.size: the job needs 10Gi of requests.storage in all, but ResourceQuota team allows 5Gi" + toRaise}},
		"a claim that exists counts already": {job: builders.TrainingJob("bert").Claim("data"), quota: quota(amounts("persistentvolumeclaims", "0"))},
		"an amount that a quota makes mandatory": {job: plain, quota: quota(amounts("limits.memory", "64Gi")), want: []string{
			"spec.resources.limits.memory: is not set, but ResourceQuota team counts limits.memory, so that the API server refuses the workers' pods: " +
				"set it, or give the namespace a LimitRange with defaults"}},
		"a mandatory amount that a LimitRange sets": {job: plain, quota: quota(amounts("limits.memory", "2Gi")),
			ranges: []corev1.LimitRange{limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Default: amounts("memory", "1Gi")})}},
		"a LimitRange's default counts": {job: plain, quota: quota(amounts("requests.cpu", "3")),
			ranges: []corev1.LimitRange{limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, DefaultRequest: amounts("cpu", "2")})}, want: []string{
				"spec.resources: the job needs 4 of requests.cpu in all, but ResourceQuota team allows 3" + toRaise}},
		"RDMA devices": {job: builders.TrainingJob("bert").Workers(2).Spec(func(s *mlv1.TrainingJobSpec) { s.Networking.RDMAEnabled = ptr.To(true) }),
			quota: quota(amounts("requests.rdma/hca", "1")), want: []string{
				"spec.networking.rdmaResource: the job needs 2 of requests.rdma/hca in all, but ResourceQuota team allows 1" + toRaise}},
		"an own extended resource": {job: plainWith("example.com/fpga", "2"), quota: quota(amounts("requests.example.com/fpga", "1")), want: []string{
			"spec.resources: the job needs 2 of requests.example.com/fpga in all, but ResourceQuota team allows 1" + toRaise}},

		"a quota on pods with a deadline":              {job: plain, quota: quota(amounts("pods", "0"), scope("Terminating", "Exists"))},
		"a quota on pods without":                      {job: plain, quota: quota(amounts("pods", "1"), scope("NotTerminating", "Exists")), want: []string{"2 of pods"}},
		"a quota on best-effort pods":                  {job: plain, quota: quota(amounts("pods", "1"), scope("BestEffort", "Exists")), want: []string{"2 of pods"}},
		"one that asks for memory is none":             {job: memory, quota: quota(amounts("pods", "1"), scope("BestEffort", "Exists"))},
		"but it is one of the others":                  {job: memory, quota: quota(amounts("pods", "1"), scope("NotBestEffort", "Exists")), want: []string{"3 of pods"}},
		"a quota of the job's priority":                {job: priority, quota: quota(amounts("pods", "1"), scope("PriorityClass", "In", "high")), want: []string{"2 of pods"}},
		"a quota of any priority":                      {job: priority, quota: quota(amounts("pods", "1"), scope("PriorityClass", "Exists")), want: []string{"2 of pods"}},
		"a quota of another priority":                  {job: priority, quota: quota(amounts("pods", "1"), scope("PriorityClass", "In", "low"))},
		"a quota of all priorities but the job's":      {job: priority, quota: quota(amounts("pods", "1"), scope("PriorityClass", "NotIn", "high"))},
		"a job without priority may get a default one": {job: plain, quota: quota(amounts("pods", "1"), scope("PriorityClass", "DoesNotExist"))},
		"a quota with two scopes, one of them for other pods": {job: plain,
			quota: quota(amounts("pods", "1"), scope("NotTerminating", "Exists"), scope("NotBestEffort", "Exists"))},
		"a scoped quota counts no Services": {job: plain, quota: quota(amounts("services", "0"), scope("NotTerminating", "Exists"))},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := warn(test.job.Obj(), findings{
				quotas: corev1.ResourceQuotaList{Items: []corev1.ResourceQuota{test.quota}}, ranges: corev1.LimitRangeList{Items: test.ranges},
			})
			assertWarnings(t, test.want, got)
		})
	}
}

func plainWith(name, amount string) *builders.TrainingJobBuilder {
	return builders.TrainingJob("bert").Spec(resources(nil, amounts(name, amount)))
}

func limitRange(list ...corev1.LimitRangeItem) corev1.LimitRange {
	return corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "sizes"}, Spec: corev1.LimitRangeSpec{Limits: list}}
}

func TestLimitRanges(t *testing.T) {
	job := builders.TrainingJob("bert").GPUs(2).Spec(resources(amounts("cpu", "2"), amounts("memory", "64Gi")))
	const end = ", so that the API server refuses it: "
	tests := map[string]struct {
		item corev1.LimitRangeItem
		want []string
	}{
		"room for the worker": {corev1.LimitRangeItem{Type: "Container", Max: amounts("memory", "64Gi", "cpu", "2"), Min: amounts("cpu", "2")}, nil},
		"a maximum below the worker's limit": {corev1.LimitRangeItem{Type: "Container", Max: amounts("memory", "32Gi")}, []string{
			"spec.resources: the worker asks for 64Gi of memory, but LimitRange sizes allows at most 32Gi for each container" + end + "ask for less, or change the LimitRange"}},
		"a maximum below the worker's request": {corev1.LimitRangeItem{Type: "Pod", Max: amounts("cpu", "1")}, []string{
			"spec.resources: the worker asks for 2 of cpu, but LimitRange sizes allows at most 1 for each pod" + end + "ask for less, or change the LimitRange"}},
		"a minimum above the worker's request": {corev1.LimitRangeItem{Type: "Container", Min: amounts("cpu", "4")}, []string{
			"spec.resources: the worker asks for 2 of cpu, but LimitRange sizes allows at least 4 for each container" + end + "ask for more, or change the LimitRange"}},
		"a maximum of GPUs": {corev1.LimitRangeItem{Type: "Container", Max: amounts("nvidia.com/gpu", "1")}, []string{
			"spec.gpusPerWorker: the worker asks for 2 of nvidia.com/gpu, but LimitRange sizes allows at most 1 for each container" + end + "ask for less, or change the LimitRange"}},
		"a maximum of claims, without a claim": {corev1.LimitRangeItem{Type: "PersistentVolumeClaim", Max: amounts("storage", "1Gi")}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			assertWarnings(t, test.want, warn(job.Obj(), findings{ranges: corev1.LimitRangeList{Items: []corev1.LimitRange{limitRange(test.item)}}}))
		})
	}
	claim := warn(builders.TrainingJob("bert").Checkpoints().Obj(), findings{ranges: corev1.LimitRangeList{Items: []corev1.LimitRange{
		limitRange(corev1.LimitRangeItem{Type: "PersistentVolumeClaim", Max: amounts("storage", "1Gi")}),
	}}})
	assertWarnings(t, []string{"spec.checkpoint.storage.size: the new claim asks for 10Gi of storage, but LimitRange sizes allows at most 1Gi for each claim"}, claim)
}

// warn is what the user is told when these are the findings about a job.
func warn(job *mlv1.TrainingJob, found findings) []string {
	return warnings(job, childrenOf(job), found)
}

func assertWarnings(t *testing.T, want, got []string) {
	t.Helper()
	if assert.Len(t, got, len(want)) {
		for i := range want {
			assert.Contains(t, got[i], want[i])
		}
	}
}
