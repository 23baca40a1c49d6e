package main

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const (
	// container of the Deployment.
	container = "manager"
	// workerImageVariable, agentImageVariable, nodeAgentImageVariable and logLevelVariable are the manager's environment
	// variables that have a value of their own.
	workerImageVariable    = "RELATED_IMAGE_TRAINING_WORKER"
	agentImageVariable     = "RELATED_IMAGE_CHECKPOINT_AGENT"
	nodeAgentImageVariable = "RELATED_IMAGE_NODE_AGENT"
	logLevelVariable       = "LOG_LEVEL"
)

// switches are arguments of the manager that a value below .Values turns off.
var switches = []struct{ argument, value, off string }{
	{"--metrics-bind-address=", "metrics.enabled", "0"},
	{"--webhook-cert-mode=", "webhooks.enabled", "off"},
}

// managerFlags are the flags of the manager that have a value below .Values.manager. Whole numbers need to be made such
// again: Helm knows only floating-point numbers, and writes large ones as 1e+06.
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

// deployment has the values in their places; everything else stays as config/manager has it.
func deployment(e *expressions, content map[string]any) error {
	spec := content["spec"].(map[string]any)
	spec["replicas"] = e.inline("{{ int .Values.replicas }}")
	template, _, err := unstructured.NestedFieldNoCopy(spec, "template")
	if err != nil {
		return err
	}
	metadata, _, err := unstructured.NestedFieldNoCopy(template.(map[string]any), "metadata")
	if err != nil {
		return err
	}
	for field, value := range map[string]string{"labels": "podLabels", "annotations": "podAnnotations"} {
		entries, ok := metadata.(map[string]any)[field].(map[string]any)
		if !ok {
			return fmt.Errorf("the pod template has no %s, which the value %s adds to", field, value)
		}
		extend(e, entries, value)
	}
	pod := template.(map[string]any)["spec"].(map[string]any)
	for _, field := range []string{"imagePullSecrets", "nodeSelector", "tolerations", "topologySpreadConstraints"} {
		addField(e, pod, field, field)
	}
	e.field(pod, "priorityClassName", "{{- with .Values.priorityClassName }}\npriorityClassName: {{ . | quote }}\n{{- end }}")
	for field, value := range map[string]string{"affinity": "affinity", "securityContext": "podSecurityContext"} {
		if err := replaceable(e, pod, field, value); err != nil {
			return err
		}
	}
	for _, c := range pod["containers"].([]any) {
		if c := c.(map[string]any); c["name"] == container {
			return managerContainer(e, c)
		}
	}
	return fmt.Errorf("there is no container %s", container)
}

func managerContainer(e *expressions, c map[string]any) error {
	c["image"] = e.inline(`{{ include "spot-training-operator.image" (dict "image" .Values.image "chart" .Chart) | quote }}`)
	c["imagePullPolicy"] = e.inline("{{ .Values.image.pullPolicy }}")
	e.field(c, "resources", "resources:\n  {{- toYaml .Values.resources | nindent +2 }}")
	if err := arguments(e, c); err != nil {
		return err
	}
	return environment(e, c)
}

func arguments(e *expressions, c map[string]any) error {
	args := c["args"].([]any)
	for _, s := range switches {
		found := false
		for i, arg := range args {
			if on, ok := strings.CutPrefix(arg.(string), s.argument); ok {
				args[i] = s.argument + e.inline(fmt.Sprintf("{{ ternary %q %q .Values.%s }}", on, s.off, s.value))
				found = true
			}
		}
		if !found {
			return fmt.Errorf("the manager has no argument %s, which the value %s changes", s.argument, s.value)
		}
	}
	var lines strings.Builder
	for _, f := range managerFlags {
		fmt.Fprintf(&lines, "{{- with .Values.manager.%s }}\n- --%s=%s\n{{- end }}\n", f.value, f.flag, f.format)
	}
	lines.WriteString("{{- range .Values.manager.extraArgs }}\n- {{ . | quote }}\n{{- end }}")
	c["args"] = append(args, e.item(lines.String()))
	return nil
}

func environment(e *expressions, c map[string]any) error {
	expected := map[string]string{
		workerImageVariable:    `{{ include "spot-training-operator.image" (dict "image" .Values.workerImage "chart" .Chart) | quote }}`,
		agentImageVariable:     `{{ include "spot-training-operator.image" (dict "image" .Values.image "chart" .Chart) | quote }}`,
		nodeAgentImageVariable: `{{ include "spot-training-operator.image" (dict "image" .Values.image "chart" .Chart) | quote }}`,
		logLevelVariable:       "{{ .Values.logLevel }}",
	}
	variables := c["env"].([]any)
	for _, variable := range variables {
		variable := variable.(map[string]any)
		if expression, ok := expected[variable["name"].(string)]; ok {
			variable["value"] = e.inline(expression)
			delete(expected, variable["name"].(string))
		}
	}
	for name := range expected {
		return fmt.Errorf("the manager has no environment variable %s, which a value of the chart sets", name)
	}
	c["env"] = append(variables, e.item("{{- with .Values.manager.extraEnv }}\n{{- toYaml . | nindent +0 }}\n{{- end }}"))
	return nil
}

// replaceable has a value in the place of a whole field, when the value is set.
func replaceable(e *expressions, object map[string]any, field, value string) error {
	preset, ok := object[field]
	if !ok {
		return fmt.Errorf("the pod has no %s, which the value %s replaces", field, value)
	}
	text, err := yaml.Marshal(preset)
	if err != nil {
		return err
	}
	var lines strings.Builder
	fmt.Fprintf(&lines, "%s:\n  {{- with .Values.%s }}\n  {{- toYaml . | nindent +2 }}\n  {{- else }}\n", field, value)
	for line := range strings.Lines(string(text)) {
		lines.WriteString("  " + line)
	}
	lines.WriteString("  {{- end }}")
	e.field(object, field, lines.String())
	return nil
}
