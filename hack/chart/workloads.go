package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

type object = map[string]any

func image(value string) string {
	return `{{ include "spot-training-operator.image" (dict "image" .Values.` + value + ` "chart" .Chart) | quote }}`
}

// switches are arguments of the manager that a value below .Values turns off.
var switches = []struct{ argument, value, off string }{
	{"--metrics-bind-address=", "metrics.enabled", "0"},
	{"--webhook-cert-mode=", "webhooks.enabled", "off"},
}

// managerFlags are the flags of the manager that have a value below .Values.manager. Helm reads whole numbers as
// floating-point numbers and writes large ones as 1e+06, so int converts them.
var managerFlags = []struct{ flag, value, format string }{
	{"concurrency", "concurrency", "{{ int . }}"},
	{"resync", "resync", "{{ . }}"},
	{"kube-api-qps", "kubeAPIQPS", "{{ . }}"},
	{"kube-api-burst", "kubeAPIBurst", "{{ int . }}"},
	{"progress-interval", "progressInterval", "{{ . }}"},
	{"progress-workers", "progressWorkers", "{{ int . }}"},
	{"metrics-max-jobs", "metricsMaxJobs", "{{ int . }}"},
	{"cloud-list-interval", "cloudListInterval", "{{ . }}"},
	{"gcp-endpoint", "gcpEndpoint", "{{ . }}"},
	{"tensorboard-image", "tensorboardImage", "{{ . }}"},
	{"isolate-jobs", "isolateJobs", "{{ . }}"},
	{"job-service-url", "jobServiceURL", "{{ . }}"},
}

// manager replaces what values set in the manager's Deployment; everything else stays as config/manager has it.
func manager(e *expressions, deployment object) error {
	pod, c, err := workload(e, deployment, "manager", "imagePullSecrets", "nodeSelector", "tolerations", "topologySpreadConstraints")
	if err != nil {
		return err
	}
	deployment["spec"].(object)["replicas"] = e.inline("{{ int .Values.replicas }}")
	for field, value := range map[string]string{"labels": "podLabels", "annotations": "podAnnotations"} {
		entries, _, err := unstructured.NestedFieldNoCopy(deployment, "spec", "template", "metadata", field)
		if err != nil || entries == nil {
			return fmt.Errorf("the pod template has no %s, which the value %s adds to", field, value)
		}
		extend(e, entries.(object), value)
	}
	e.field(pod, "priorityClassName", "{{- with .Values.priorityClassName }}\npriorityClassName: {{ . | quote }}\n{{- end }}")
	for field, value := range map[string]string{"affinity": "affinity", "securityContext": "podSecurityContext"} {
		if err := replaceable(e, pod, field, value); err != nil {
			return err
		}
	}
	args := c["args"].([]any)
	for _, s := range switches {
		at := slices.IndexFunc(args, func(arg any) bool { return strings.HasPrefix(arg.(string), s.argument) })
		if at < 0 {
			return fmt.Errorf("the manager has no argument %s, which the value %s changes", s.argument, s.value)
		}
		on := strings.TrimPrefix(args[at].(string), s.argument)
		args[at] = s.argument + e.inline(fmt.Sprintf("{{ ternary %q %q .Values.%s }}", on, s.off, s.value))
	}
	for _, f := range managerFlags {
		args = append(args, e.item(fmt.Sprintf("{{- with .Values.manager.%s }}\n- --%s=%s\n{{- end }}", f.value, f.flag, f.format)))
	}
	c["args"] = args
	return container(e, c, "manager", "resources", map[string]string{
		"RELATED_IMAGE_TRAINING_WORKER":  image("workerImage"),
		"RELATED_IMAGE_CHECKPOINT_AGENT": image("image"),
		"RELATED_IMAGE_NODE_AGENT":       image("image"),
	})
}

func jobService(e *expressions, deployment object) error {
	pod, c, err := workload(e, deployment, "job-service", "imagePullSecrets", "nodeSelector", "tolerations")
	if err != nil {
		return err
	}
	spec := deployment["spec"].(object)
	spec["replicas"] = e.inline("{{ int .Values.jobService.replicas }}")
	strategy := e.inline(`{{ ternary "RollingUpdate" "Recreate" (gt (int .Values.jobService.replicas) 1) }}`)
	if err := unstructured.SetNestedField(spec, strategy, "strategy", "type"); err != nil {
		return err
	}
	if volumes := pod["volumes"].([]any); len(volumes) != 1 {
		return fmt.Errorf("there are %d volumes, and one is known, data", len(volumes))
	}
	pod["volumes"] = []any{e.item("- name: data\n  {{- with .Values.jobService.existingClaim }}\n  persistentVolumeClaim:\n    claimName: {{ . | quote }}\n" +
		"  {{- else }}\n  emptyDir: {}\n  {{- end }}")}
	secret := c["envFrom"].([]any)[0].(object)
	if err := unstructured.SetNestedField(secret, e.inline("{{ .Values.jobService.secret | quote }}"), "secretRef", "name"); err != nil {
		return err
	}
	return container(e, c, "jobService", "jobService.resources", map[string]string{})
}

func workload(e *expressions, deployment object, name string, fields ...string) (pod, c object, err error) {
	spec, _, err := unstructured.NestedFieldNoCopy(deployment, "spec", "template", "spec")
	if err != nil {
		return nil, nil, err
	}
	pod = spec.(object)
	for _, field := range fields {
		addField(e, pod, field, field)
	}
	for _, c := range pod["containers"].([]any) {
		if c := c.(object); c["name"] == name {
			return pod, c, nil
		}
	}
	return nil, nil, fmt.Errorf("there is no container %s", name)
}

// container replaces what both containers have: the image, the resources, further arguments and variables below the value
// group, and the values of environment variables.
func container(e *expressions, c object, group, resources string, variables map[string]string) error {
	c["image"] = e.inline(image("image"))
	c["imagePullPolicy"] = e.inline("{{ .Values.image.pullPolicy }}")
	e.field(c, "resources", "resources:\n  {{- toYaml .Values."+resources+" | nindent +2 }}")
	c["args"] = append(c["args"].([]any), e.item("{{- range .Values."+group+".extraArgs }}\n- {{ . | quote }}\n{{- end }}"))
	variables["LOG_LEVEL"] = "{{ .Values.logLevel }}"
	env := c["env"].([]any)
	for _, variable := range env {
		variable := variable.(object)
		name := variable["name"].(string)
		if expression, ok := variables[name]; ok {
			variable["value"] = e.inline(expression)
			delete(variables, name)
		}
	}
	if len(variables) > 0 {
		return fmt.Errorf("the container has no environment variables %v, which values of the chart set", slices.Sorted(maps.Keys(variables)))
	}
	c["env"] = append(env, e.item("{{- with .Values."+group+".extraEnv }}\n{{- toYaml . | nindent +0 }}\n{{- end }}"))
	return nil
}

// replaceable lets a value replace a whole field.
func replaceable(e *expressions, o object, field, value string) error {
	preset, ok := o[field]
	if !ok {
		return fmt.Errorf("the pod has no %s, which the value %s replaces", field, value)
	}
	text, err := yaml.Marshal(preset)
	if err != nil {
		return err
	}
	indented := "  " + strings.ReplaceAll(strings.TrimSuffix(string(text), "\n"), "\n", "\n  ")
	e.field(o, field, fmt.Sprintf("%s:\n  {{- with .Values.%s }}\n  {{- toYaml . | nindent +2 }}\n  {{- else }}\n%s\n  {{- end }}", field, value, indented))
	return nil
}
