package main

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// jobServiceObjects is the name of all objects of the job service.
const jobServiceObjects = "spot-training-operator-job-service"

// jobServicePlace is the place of its objects: all of them come with a value.
func jobServicePlace(kind string) place {
	switch kind {
	case "NetworkPolicy":
		return place{"job-service.yaml", "and .Values.jobService.enabled .Values.networkPolicy.enabled"}
	case "ServiceMonitor":
		return place{"job-service.yaml", "and .Values.jobService.enabled .Values.metrics.enabled .Values.metrics.serviceMonitor.enabled"}
	}
	return place{"job-service.yaml", ".Values.jobService.enabled"}
}

// jobService has the values in their places in the job service's Deployment.
func jobService(e *expressions, content map[string]any) error {
	spec := content["spec"].(map[string]any)
	spec["replicas"] = e.inline("{{ int .Values.jobService.replicas }}")
	if err := unstructured.SetNestedField(spec,
		e.inline(`{{ ternary "RollingUpdate" "Recreate" (gt (int .Values.jobService.replicas) 1) }}`), "strategy", "type"); err != nil {
		return err
	}
	found, _, err := unstructured.NestedFieldNoCopy(spec, "template", "spec")
	if err != nil {
		return err
	}
	pod := found.(map[string]any)
	for _, field := range []string{"imagePullSecrets", "nodeSelector", "tolerations"} {
		addField(e, pod, field, field)
	}
	if volumes := pod["volumes"].([]any); len(volumes) != 1 {
		return fmt.Errorf("there are %d volumes, and one is known, data", len(volumes))
	}
	pod["volumes"] = []any{e.item("- name: data\n  {{- with .Values.jobService.existingClaim }}\n  persistentVolumeClaim:\n    claimName: {{ . | quote }}\n" +
		"  {{- else }}\n  emptyDir: {}\n  {{- end }}")}
	for _, c := range pod["containers"].([]any) {
		if c := c.(map[string]any); c["name"] == "job-service" {
			return jobServiceContainer(e, c)
		}
	}
	return errors.New("there is no container job-service")
}

func jobServiceContainer(e *expressions, c map[string]any) error {
	c["image"] = e.inline(`{{ include "spot-training-operator.image" (dict "image" .Values.image "chart" .Chart) | quote }}`)
	c["imagePullPolicy"] = e.inline("{{ .Values.image.pullPolicy }}")
	e.field(c, "resources", "resources:\n  {{- toYaml .Values.jobService.resources | nindent +2 }}")
	c["args"] = append(c["args"].([]any), e.item("{{- range .Values.jobService.extraArgs }}\n- {{ . | quote }}\n{{- end }}"))
	secrets := c["envFrom"].([]any)
	if err := unstructured.SetNestedField(secrets[0].(map[string]any), e.inline("{{ .Values.jobService.secret | quote }}"), "secretRef", "name"); err != nil {
		return err
	}
	variables := c["env"].([]any)
	for _, variable := range variables {
		if variable := variable.(map[string]any); variable["name"] == logLevelVariable {
			variable["value"] = e.inline("{{ .Values.logLevel }}")
			c["env"] = append(variables, e.item("{{- with .Values.jobService.extraEnv }}\n{{- toYaml . | nindent +0 }}\n{{- end }}"))
			return nil
		}
	}
	return fmt.Errorf("the job service has no environment variable %s", logLevelVariable)
}
