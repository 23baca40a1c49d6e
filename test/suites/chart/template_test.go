package chart_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// admissionAPI tells helm template that the cluster serves the admission policy.
const admissionAPI = "--api-versions=admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"

// theImagesOfConfig have the chart name the images that config/manager names.
var theImagesOfConfig = []string{
	"--set=image.repository=spot-training-operator,image.tag=dev",
	"--set=workerImage.repository=spot-training-operator-worker,workerImage.tag=dev",
}

func TestTheChartMakesWhatKustomizeBuilds(t *testing.T) {
	tests := map[string]struct {
		folder string
		absent []string // kinds
		values []string
	}{
		"by default":                   {folder: "default", values: []string{admissionAPI}},
		"without the admission policy": {folder: "default", absent: []string{"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"}},
		"with everything that is offered": {folder: "chart", values: []string{
			admissionAPI, "--set=metrics.serviceMonitor.enabled=true,metrics.prometheusRule.enabled=true,metrics.dashboards.enabled=true,networkPolicy.enabled=true,jobService.enabled=true",
			"--set=networkPolicy.egress.enabled=true,networkPolicy.egress.apiServer.cidrs={192.0.2.1/32}," +
				"networkPolicy.egress.cloud.enabled=true,networkPolicy.egress.cloud.metadataServer=true",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			want := withoutWhatDiffers(kustomize(t, test.folder))
			maps.DeleteFunc(want, func(_ string, object map[string]any) bool {
				// Helm makes the release's namespace.
				return object["kind"] == "Namespace" || slices.Contains(test.absent, object["kind"].(string))
			})

			got := withoutWhatDiffers(render(t, append(test.values, theImagesOfConfig...)...))

			assert.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)))
			for id := range want {
				assert.Empty(t, cmp.Diff(want[id], got[id]), "%s differs: run make chart, or fix values.yaml", id)
			}
		})
	}
}

// withoutWhatDiffers are objects without what Helm and kustomize must have each their own way.
func withoutWhatDiffers(objects map[string]*unstructured.Unstructured) map[string]map[string]any {
	all := map[string]map[string]any{}
	for id, object := range objects {
		labels := object.GetLabels()
		for _, label := range []string{"app.kubernetes.io/managed-by", "app.kubernetes.io/instance", "app.kubernetes.io/version", "helm.sh/chart"} {
			delete(labels, label)
		}
		object.SetLabels(labels)
		annotations := object.GetAnnotations()
		delete(annotations, "helm.sh/resource-policy")
		object.SetAnnotations(annotations)
		all[id] = inReleaseNamespace(object.Object).(map[string]any)
	}
	return all
}

func inReleaseNamespace(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, child := range v {
			v[key] = inReleaseNamespace(child)
		}
	case []any:
		for i, child := range v {
			v[i] = inReleaseNamespace(child)
		}
	case string:
		return strings.ReplaceAll(v, kustomizeNamespace, releaseNamespace)
	}
	return value
}

// manager is the Deployment that the chart makes with the values.
func manager(t *testing.T, values ...string) *appsv1.Deployment {
	t.Helper()
	object := render(t, values...)["Deployment "+deploymentName]
	require.NotNil(t, object)
	var deployment appsv1.Deployment
	require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &deployment, true))
	return &deployment
}

func TestEveryValueOfTheManagerTakesEffect(t *testing.T) {
	pod := func(d *appsv1.Deployment) corev1.PodSpec { return d.Spec.Template.Spec }
	container := func(d *appsv1.Deployment) corev1.Container { return d.Spec.Template.Spec.Containers[0] }
	digest := "sha256:" + strings.Repeat("0123456789abcdef", 4)
	environment := func(d *appsv1.Deployment, name string) string {
		for _, variable := range container(d).Env {
			if variable.Name == name {
				return variable.Value
			}
		}
		return ""
	}
	tests := map[string]struct {
		value string
		want  any
		got   func(*appsv1.Deployment) any
	}{
		"image": {"--set=image.repository=registry.example.com/a/b,image.tag=v7", "registry.example.com/a/b:v7",
			func(d *appsv1.Deployment) any { return container(d).Image }},
		"image by digest": {"--set=image.repository=registry.example.com/a/b,image.tag=v7,image.digest=" + digest, "registry.example.com/a/b@" + digest,
			func(d *appsv1.Deployment) any { return container(d).Image }},
		"image.pullPolicy": {"--set=image.pullPolicy=Always", corev1.PullAlways,
			func(d *appsv1.Deployment) any { return container(d).ImagePullPolicy }},
		"workerImage": {"--set=workerImage.repository=registry.example.com/a/w,workerImage.digest=" + digest, "registry.example.com/a/w@" + digest,
			func(d *appsv1.Deployment) any { return environment(d, "RELATED_IMAGE_TRAINING_WORKER") }},
		"the checkpoint agent's image": {"--set=image.repository=registry.example.com/a/b,image.tag=v7", "registry.example.com/a/b:v7",
			func(d *appsv1.Deployment) any { return environment(d, "RELATED_IMAGE_CHECKPOINT_AGENT") }},
		"the node agent's image": {"--set=image.repository=registry.example.com/a/b,image.tag=v7", "registry.example.com/a/b:v7",
			func(d *appsv1.Deployment) any { return environment(d, "RELATED_IMAGE_NODE_AGENT") }},
		"imagePullSecrets": {`--set-json=imagePullSecrets=[{"name":"pull"}]`, []corev1.LocalObjectReference{{Name: "pull"}},
			func(d *appsv1.Deployment) any { return pod(d).ImagePullSecrets }},
		"replicas": {"--set=replicas=3", int32(3),
			func(d *appsv1.Deployment) any { return *d.Spec.Replicas }},
		"logLevel": {"--set=logLevel=debug", "debug",
			func(d *appsv1.Deployment) any { return environment(d, "LOG_LEVEL") }},
		"arguments": {
			"--set=manager.concurrency=3,manager.resync=90s,manager.kubeAPIQPS=-1,manager.kubeAPIBurst=2000000,manager.progressInterval=2s," +
				"manager.progressWorkers=4,manager.metricsMaxJobs=5000000,manager.extraArgs={--log-level=warn}",
			[]string{
				"--concurrency=3", "--resync=90s", "--kube-api-qps=-1", "--kube-api-burst=2000000", "--progress-interval=2s",
				"--progress-workers=4", "--metrics-max-jobs=5000000", "--log-level=warn",
			},
			func(d *appsv1.Deployment) any { return container(d).Args[len(container(d).Args)-8:] }},
		"manager.isolateJobs, which is true by default": {"--set=manager.isolateJobs=false", true,
			func(d *appsv1.Deployment) any { return slices.Contains(container(d).Args, "--isolate-jobs=false") }},
		"manager.requireQueue": {"--set=manager.requireQueue=true", true,
			func(d *appsv1.Deployment) any { return slices.Contains(container(d).Args, "--require-queue=true") }},
		"manager.defaultWorkerRequests": {`--set-json=manager.defaultWorkerRequests={"memory":"2Gi","cpu":"500m"}`, true,
			func(d *appsv1.Deployment) any {
				return slices.Contains(container(d).Args, "--default-worker-requests=cpu=500m,memory=2Gi")
			}},
		"manager.defaultWorkerLimits": {`--set-json=manager.defaultWorkerLimits={"cpu":2}`, true,
			func(d *appsv1.Deployment) any {
				return slices.Contains(container(d).Args, "--default-worker-limits=cpu=2")
			}},
		"manager.extraEnv": {`--set-json=manager.extraEnv=[{"name":"GOGC","value":"50"}]`, "50",
			func(d *appsv1.Deployment) any { return environment(d, "GOGC") }},
		"resources": {`--set-json=resources={"limits":{"memory":"1Gi"},"requests":{"cpu":"2","memory":null}}`, "1Gi 2",
			func(d *appsv1.Deployment) any {
				r := container(d).Resources
				return r.Limits.Memory().String() + " " + r.Requests.Cpu().String()
			}},
		"nodeSelector": {"--set=nodeSelector.pool=system", map[string]string{"pool": "system"},
			func(d *appsv1.Deployment) any { return pod(d).NodeSelector }},
		"tolerations": {`--set-json=tolerations=[{"key":"spot","operator":"Exists"}]`, []corev1.Toleration{{Key: "spot", Operator: "Exists"}},
			func(d *appsv1.Deployment) any { return pod(d).Tolerations }},
		"affinity": {`--set-json=affinity={"nodeAffinity":{}}`, &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}},
			func(d *appsv1.Deployment) any { return pod(d).Affinity }},
		"topologySpreadConstraints": {
			`--set-json=topologySpreadConstraints=[{"maxSkew":1,"topologyKey":"zone","whenUnsatisfiable":"DoNotSchedule"}]`, "zone",
			func(d *appsv1.Deployment) any { return pod(d).TopologySpreadConstraints[0].TopologyKey }},
		"priorityClassName": {"--set=priorityClassName=operators", "operators",
			func(d *appsv1.Deployment) any { return pod(d).PriorityClassName }},
		"podSecurityContext": {"--set=podSecurityContext.fsGroup=7", &corev1.PodSecurityContext{FSGroup: ptr.To[int64](7)},
			func(d *appsv1.Deployment) any { return pod(d).SecurityContext }},
		"podAnnotations": {"--set=podAnnotations.team=a", "a",
			func(d *appsv1.Deployment) any { return d.Spec.Template.Annotations["team"] }},
		"podLabels": {"--set=podLabels.team=a", map[string]string{
			"team": "a", "control-plane": "controller-manager", "app.kubernetes.io/name": "spot-training-operator",
		}, func(d *appsv1.Deployment) any { return d.Spec.Template.Labels }},
		"commonLabels": {"--set=commonLabels.team=a", "a",
			func(d *appsv1.Deployment) any { return d.Labels["team"] }},
		"webhooks.enabled": {"--set=webhooks.enabled=false", true,
			func(d *appsv1.Deployment) any { return slices.Contains(container(d).Args, "--webhook-cert-mode=off") }},
		"metrics.enabled": {"--set=metrics.enabled=false", true,
			func(d *appsv1.Deployment) any { return slices.Contains(container(d).Args, "--metrics-bind-address=0") }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.want, test.got(manager(t, test.value)))
		})
	}
}

func TestTheImagesAreOfTheChartsVersionByDefault(t *testing.T) {
	deployment := manager(t)
	version := deployment.Labels["app.kubernetes.io/version"]

	assert.Equal(t, "registry.example.com/dcnlab/spot-training-operator:v"+version, deployment.Spec.Template.Spec.Containers[0].Image)
}

func TestValuesChooseObjects(t *testing.T) {
	tests := map[string]struct {
		values        []string
		there, absent []string
	}{
		"nothing set": {
			there: []string{"CustomResourceDefinition trainingjobs.ml.example.com", "Service spot-training-operator-controller-manager-metrics-service",
				"ClusterRole spot-training-operator-trainingjob-editor-role", "ClusterRole spot-training-operator-metrics-auth-role"},
			absent: []string{"ServiceMonitor spot-training-operator-metrics", "PrometheusRule spot-training-operator",
				"ConfigMap spot-training-operator-dashboard-fleet", "NetworkPolicy spot-training-operator-allow-metrics-traffic",
				"NetworkPolicy spot-training-operator-egress-manager", "MutatingAdmissionPolicy spot-training-operator-replica-id", "Namespace spot-training-operator-system",
				"Deployment spot-training-operator-job-service", "ClusterRole spot-training-operator-job-service"},
		},
		"a cluster that serves the admission policy": {
			values: []string{admissionAPI},
			there:  []string{"MutatingAdmissionPolicy spot-training-operator-replica-id", "MutatingAdmissionPolicyBinding spot-training-operator-replica-id"},
		},
		"admissionPolicy.install=never": {
			values: []string{admissionAPI, "--set=admissionPolicy.install=never"},
			absent: []string{"MutatingAdmissionPolicy spot-training-operator-replica-id", "MutatingAdmissionPolicyBinding spot-training-operator-replica-id"},
		},
		"admissionPolicy.install=always": {
			values: []string{"--set=admissionPolicy.install=always"},
			there:  []string{"MutatingAdmissionPolicy spot-training-operator-replica-id"},
		},
		"crds.install=false": {
			values: []string{"--set=crds.install=false"},
			absent: []string{"CustomResourceDefinition trainingjobs.ml.example.com", "CustomResourceDefinition agents.aiplatform.example.com"},
		},
		"metrics.enabled=false": {
			values: []string{"--set=metrics.enabled=false,metrics.serviceMonitor.enabled=true,metrics.prometheusRule.enabled=true,metrics.dashboards.enabled=true"},
			absent: []string{"PrometheusRule spot-training-operator", "ConfigMap spot-training-operator-dashboard-fleet", "Service spot-training-operator-controller-manager-metrics-service", "ServiceMonitor spot-training-operator-metrics",
				"ClusterRole spot-training-operator-metrics-auth-role", "ClusterRoleBinding spot-training-operator-metrics-auth-rolebinding",
				"ClusterRole spot-training-operator-metrics-reader"},
		},
		"webhooks.enabled=false": {
			values: []string{"--set=webhooks.enabled=false,networkPolicy.enabled=true"},
			there:  []string{"NetworkPolicy spot-training-operator-allow-metrics-traffic"},
			absent: []string{"MutatingWebhookConfiguration spot-training-operator", "ValidatingWebhookConfiguration spot-training-operator",
				"Service spot-training-operator-webhook", "NetworkPolicy spot-training-operator-allow-webhook-traffic",
				"Role spot-training-operator-webhook-certificate", "ClusterRoleBinding spot-training-operator-webhook-certificate"},
		},
		"jobService.enabled=true": {
			values: []string{"--set=jobService.enabled=true"},
			there: []string{"Deployment spot-training-operator-job-service", "Service spot-training-operator-job-service",
				"ServiceAccount spot-training-operator-job-service", "ClusterRole spot-training-operator-job-service",
				"ClusterRoleBinding spot-training-operator-job-service", "PodDisruptionBudget spot-training-operator-job-service",
				"Role spot-training-operator-job-service-certificate", "RoleBinding spot-training-operator-job-service-certificate"},
			absent: []string{
				"NetworkPolicy spot-training-operator-job-service", "ServiceMonitor spot-training-operator-job-service",
				"HorizontalPodAutoscaler spot-training-operator-job-service",
			},
		},
		"jobService.autoscaling.enabled=true": {
			values: []string{"--set=jobService.enabled=true,jobService.autoscaling.enabled=true"},
			there:  []string{"HorizontalPodAutoscaler spot-training-operator-job-service"},
		},
		"an autoscaler without a job service": {
			values: []string{"--set=jobService.autoscaling.enabled=true"},
			absent: []string{"HorizontalPodAutoscaler spot-training-operator-job-service", "Deployment spot-training-operator-job-service"},
		},
		"the monitor of the job service": {
			values: []string{"--set=jobService.enabled=true,metrics.serviceMonitor.enabled=true"},
			there:  []string{"ServiceMonitor spot-training-operator-job-service", "ServiceMonitor spot-training-operator-metrics"},
		},
		"no job service": {
			values: []string{"--set=metrics.serviceMonitor.enabled=true"},
			there:  []string{"ServiceMonitor spot-training-operator-metrics"},
			absent: []string{"ServiceMonitor spot-training-operator-job-service"},
		},
		"networkPolicy.egress.enabled=true": {
			values: []string{"--set=networkPolicy.egress.enabled=true,networkPolicy.egress.apiServer.cidrs={10.96.0.1/32}"},
			there:  []string{"NetworkPolicy spot-training-operator-egress-manager"},
			absent: []string{
				"NetworkPolicy spot-training-operator-egress-job-service", "NetworkPolicy spot-training-operator-egress-cloud",
				"NetworkPolicy spot-training-operator-egress-metadata-server", "NetworkPolicy spot-training-operator-allow-metrics-traffic",
			},
		},
		"options of the egress policies without them": {
			values: []string{"--set=networkPolicy.enabled=true,networkPolicy.egress.cloud.enabled=true,networkPolicy.egress.cloud.metadataServer=true"},
			there:  []string{"NetworkPolicy spot-training-operator-allow-metrics-traffic"},
			absent: []string{"NetworkPolicy spot-training-operator-egress-cloud", "NetworkPolicy spot-training-operator-egress-metadata-server"},
		},
		"rbac.userRoles=false": {
			values: []string{"--set=rbac.userRoles=false"},
			there:  []string{"ClusterRole spot-training-operator-manager-role"},
			absent: []string{"ClusterRole spot-training-operator-trainingjob-editor-role", "ClusterRole spot-training-operator-agent-admin-role"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			objects := render(t, test.values...)
			for _, id := range test.there {
				assert.Contains(t, objects, id)
			}
			for _, id := range test.absent {
				assert.NotContains(t, objects, id)
			}
		})
	}
}

func TestValuesReachTheirObjects(t *testing.T) {
	objects := render(t, "--set=serviceAccount.annotations.team=a", "--set=crds.keep=false",
		"--set=metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.interval=15s,metrics.serviceMonitor.labels.release=prometheus",
		"--set=metrics.prometheusRule.enabled=true,metrics.prometheusRule.labels.release=alerts",
		"--set=metrics.dashboards.enabled=true,metrics.dashboards.labels.folder=training")

	assert.Equal(t, "a", objects["ServiceAccount "+deploymentName].GetAnnotations()["team"])
	monitor := objects["ServiceMonitor spot-training-operator-metrics"]
	assert.Equal(t, "prometheus", monitor.GetLabels()["release"])
	assert.Equal(t, "alerts", objects["PrometheusRule spot-training-operator"].GetLabels()["release"])
	for _, dashboard := range []string{"fleet", "job"} {
		labels := objects["ConfigMap spot-training-operator-dashboard-"+dashboard].GetLabels()
		assert.Equal(t, "training", labels["folder"])
		assert.Equal(t, "1", labels["grafana_dashboard"])
	}
	endpoints, _, err := unstructured.NestedSlice(monitor.Object, "spec", "endpoints")
	require.NoError(t, err)
	assert.Equal(t, "15s", endpoints[0].(map[string]any)["interval"])
	for id, object := range objects {
		assert.NotContains(t, object.GetAnnotations(), "helm.sh/resource-policy", id)
	}
	for id, object := range render(t) {
		assert.Equal(t, object.GetKind() == "CustomResourceDefinition", object.GetAnnotations()["helm.sh/resource-policy"] == "keep", id)
	}
}

// A monitor that selects no Service, or a port that the Service or the pods do not have, scrapes nothing, without an error.
func TestEveryMonitorFindsWhatItScrapes(t *testing.T) {
	objects := render(t, "--set=jobService.enabled=true,metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.interval=15s")
	for id, workload := range map[string]string{
		"ServiceMonitor spot-training-operator-metrics":     "Deployment " + deploymentName,
		"ServiceMonitor spot-training-operator-job-service": "Deployment spot-training-operator-job-service",
	} {
		t.Run(id, func(t *testing.T) {
			require.Contains(t, objects, id)
			labels, _, err := unstructured.NestedStringMap(objects[id].Object, "spec", "selector", "matchLabels")
			require.NoError(t, err)
			endpoints, _, err := unstructured.NestedSlice(objects[id].Object, "spec", "endpoints")
			require.NoError(t, err)
			var deployment appsv1.Deployment
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(objects[workload].Object, &deployment))
			pod := deployment.Spec.Template
			found := 0
			for _, object := range objects {
				if object.GetKind() != "Service" || !contains(object.GetLabels(), labels) {
					continue
				}
				var service corev1.Service
				require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &service))
				assert.True(t, contains(pod.Labels, service.Spec.Selector), "%s selects the pods", service.Name)
				for _, port := range service.Spec.Ports {
					if port.Name != endpoints[0].(map[string]any)["port"] {
						continue
					}
					assert.True(t, slices.ContainsFunc(pod.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool {
						return p.Name == port.TargetPort.String()
					}), "the pods have the port %s", &port.TargetPort)
					found++
				}
			}
			assert.Equal(t, 1, found, "Services with the port %s", endpoints[0].(map[string]any)["port"])
			assert.Equal(t, "15s", endpoints[0].(map[string]any)["interval"])
		})
	}
}

// contains says whether labels has all of some.
func contains(labels, some map[string]string) bool {
	for key, value := range some {
		if labels[key] != value {
			return false
		}
	}
	return true
}

func TestValuesOfTheJobServiceTakeEffect(t *testing.T) {
	read := func(values ...string) *appsv1.Deployment {
		object := render(t, append(values, "--set=jobService.enabled=true")...)["Deployment spot-training-operator-job-service"]
		require.NotNil(t, object)
		var deployment appsv1.Deployment
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, &deployment, true))
		return &deployment
	}
	deployment := read("--set=jobService.replicas=3,jobService.secret=urls,jobService.existingClaim=jobs,jobService.extraArgs={--jwks=https://keys}",
		"--set=jobService.maxOpenJobs=1000000,jobService.maxOpenJobsPerUser=0",
		"--set-json=jobService.extraEnv=[{\"name\":\"A\",\"value\":\"b\"}]", "--set=jobService.resources.limits.memory=1Gi,logLevel=debug,image.tag=v9")
	assert.EqualValues(t, 3, *deployment.Spec.Replicas)
	assert.Equal(t, appsv1.RollingUpdateDeploymentStrategyType, deployment.Spec.Strategy.Type)
	pod := deployment.Spec.Template.Spec
	assert.Equal(t, "jobs", pod.Volumes[0].PersistentVolumeClaim.ClaimName)
	container := pod.Containers[0]
	assert.Contains(t, container.Args, "--jwks=https://keys")
	assert.Contains(t, container.Args, "--max-open-jobs=1000000")
	assert.Contains(t, container.Args, "--max-open-jobs-per-user=0", "no limit")
	assert.Contains(t, container.Args, "--keep-jobs-in-data-dir", "the claim outlives the pod")
	assert.Equal(t, "urls", container.EnvFrom[0].SecretRef.Name)
	assert.Equal(t, "1Gi", container.Resources.Limits.Memory().String())
	assert.Contains(t, container.Image, ":v9")
	environment := map[string]string{}
	for _, variable := range container.Env {
		environment[variable.Name] = variable.Value
	}
	assert.Equal(t, "debug", environment["LOG_LEVEL"])
	assert.Equal(t, "b", environment["A"])

	alone := read()
	assert.Equal(t, appsv1.RecreateDeploymentStrategyType, alone.Spec.Strategy.Type)
	assert.Equal(t, "1Gi", alone.Spec.Template.Spec.Volumes[0].EmptyDir.SizeLimit.String())
	assert.NotContains(t, alone.Spec.Template.Spec.Containers[0].Args, "--keep-jobs-in-data-dir")
}

func TestTheJobServiceIsScaledByWhatTheValuesName(t *testing.T) {
	const name = "spot-training-operator-job-service"
	read := func(values ...string) (hpa autoscalingv2.HorizontalPodAutoscaler, deployment appsv1.Deployment) {
		objects := render(t, append(values, "--set=jobService.enabled=true,jobService.autoscaling.enabled=true")...)
		for id, into := range map[string]any{"HorizontalPodAutoscaler " + name: &hpa, "Deployment " + name: &deployment} {
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(objects[id].Object, into, true))
		}
		return hpa, deployment
	}
	hpa, deployment := read()
	assert.Nil(t, deployment.Spec.Replicas, "an upgrade must not set it")
	assert.Equal(t, appsv1.RollingUpdateDeploymentStrategyType, deployment.Spec.Strategy.Type)
	assert.Equal(t, autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name}, hpa.Spec.ScaleTargetRef)
	assert.EqualValues(t, 1, *hpa.Spec.MinReplicas)
	assert.EqualValues(t, 3, hpa.Spec.MaxReplicas)
	require.Len(t, hpa.Spec.Metrics, 1)
	assert.Equal(t, corev1.ResourceCPU, hpa.Spec.Metrics[0].Resource.Name)
	assert.Equal(t, "500m", hpa.Spec.Metrics[0].Resource.Target.AverageValue.String())
	assert.Nil(t, hpa.Spec.Behavior)

	hpa, _ = read("--set=jobService.autoscaling.minReplicas=2,jobService.autoscaling.maxReplicas=9,jobService.autoscaling.targetCPU=null",
		`--set-json=jobService.autoscaling.metrics=[{"type":"External","external":{"metric":{"name":"aijob_queue_depth"},"target":{"type":"AverageValue","averageValue":"500"}}}]`,
		"--set=jobService.autoscaling.behavior.scaleDown.stabilizationWindowSeconds=60")
	assert.EqualValues(t, 2, *hpa.Spec.MinReplicas)
	assert.EqualValues(t, 9, hpa.Spec.MaxReplicas)
	require.Len(t, hpa.Spec.Metrics, 1)
	assert.Equal(t, "aijob_queue_depth", hpa.Spec.Metrics[0].External.Metric.Name)
	assert.EqualValues(t, 60, *hpa.Spec.Behavior.ScaleDown.StabilizationWindowSeconds)
}

// The job service, the manager and the Service must agree.
func TestTheJobServiceIsServedByHTTPSUnlessAskedOtherwise(t *testing.T) {
	const certificateRole = "Role spot-training-operator-job-service-certificate"
	cert := []string{"--tls-cert-file=/etc/job-service/tls/tls.crt", "--tls-key-file=/etc/job-service/tls/tls.key"}
	for name, test := range map[string]struct {
		values       string
		service      []string // arguments of the job service
		manager      []string // those of the manager that are about it
		secret, port string
		mayKeep      bool
	}{
		"by default": {
			"jobService.enabled=true", cert, []string{"--job-service-cert-mode=self"}, "spot-training-operator-job-service-certificate", "https", true,
		},
		"a Secret of the user's": {
			"jobService.enabled=true,jobService.tlsSecret=own", cert,
			[]string{"--job-service-cert-mode=secret", "--job-service-cert-secret=own"}, "own", "https", false,
		},
		// As helm upgrade --reuse-values has it, which knows no values that are new.
		"by the values of 0.3.0": {
			"jobService.enabled=true,jobService.autoscaling=null,jobService.plainHTTP=null,jobService.tlsSecret=null,jobService.maxOpenJobs=null,jobService.maxOpenJobsPerUser=null," +
				"manager.requireQueue=null,namespaces=null",
			cert, []string{"--job-service-cert-mode=self"}, "spot-training-operator-job-service-certificate", "https", true,
		},
		"plain HTTP": {"jobService.enabled=true,jobService.plainHTTP=true", []string{"--plain-http"}, nil, "", "http", false},
	} {
		t.Run(name, func(t *testing.T) {
			objects := render(t, "--set="+test.values)
			pod := func(id string) corev1.PodSpec {
				var deployment appsv1.Deployment
				require.Contains(t, objects, id)
				require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(objects[id].Object, &deployment, true))
				return deployment.Spec.Template.Spec
			}
			about := func(args []string, parts ...string) (found []string) {
				for _, arg := range args {
					if slices.ContainsFunc(parts, func(part string) bool { return strings.HasPrefix(arg, part) }) {
						found = append(found, arg)
					}
				}
				return found
			}
			service := pod("Deployment spot-training-operator-job-service")
			assert.Equal(t, test.service, about(service.Containers[0].Args, "--tls", "--plain-http"))
			assert.Equal(t, test.manager, about(pod("Deployment " + deploymentName).Containers[0].Args, "--job-service"))
			secret, mounts := "", 1
			for _, volume := range service.Volumes {
				if volume.Secret != nil {
					secret, mounts = volume.Secret.SecretName, 2
				}
			}
			assert.Equal(t, test.secret, secret)
			assert.Len(t, service.Containers[0].VolumeMounts, mounts)
			ports, _, err := unstructured.NestedSlice(objects["Service spot-training-operator-job-service"].Object, "spec", "ports")
			require.NoError(t, err)
			assert.Equal(t, test.port, ports[0].(map[string]any)["appProtocol"])
			_, mayKeep := objects[certificateRole]
			assert.Equal(t, test.mayKeep, mayKeep)
		})
	}
	assert.NotContains(t, render(t), certificateRole, "without the job service")
}

// A namespace may look like a number, and must not become one.
func TestTheNamespaceMayBeANumber(t *testing.T) {
	text, err := helm(t, "template", release, chart, "--namespace", "2024", "--kube-version", "1.37.0")
	require.NoError(t, err)
	for id, object := range objects(t, text) {
		if object.GetKind() == "ClusterRoleBinding" {
			subjects, _, err := unstructured.NestedSlice(object.Object, "subjects")
			require.NoError(t, err)
			if subject := subjects[0].(map[string]any); subject["kind"] == "ServiceAccount" {
				assert.Equal(t, "2024", subject["namespace"], id)
			}
		}
	}
}
