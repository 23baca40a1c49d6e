package main

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// namespace is the one of kustomize, in whose place the release's is put.
	namespace = "spot-training-operator-system"
	// metricsObjects is how the names of the objects begin that only serve the metrics.
	metricsObjects = "spot-training-operator-metrics-"
	// managerAccount is the ServiceAccount of the manager, which may be given an identity in a cloud.
	managerAccount = "spot-training-operator-controller-manager"
	// dashboardObjects is how the names of the ConfigMaps begin that hold dashboards.
	dashboardObjects = "spot-training-operator-dashboard-"
	// webhookObjects is the same for those that only serve the webhooks.
	webhookObjects = "spot-training-operator-webhook"
)

// place is the file of an object below templates/, and the condition under which it is installed. No file: the chart
// leaves the object out.
type place struct{ file, when string }

// placeOf knows every kind that config/ has. A new kind or Service is an error, so that somebody decides about it.
func placeOf(object *unstructured.Unstructured) (place, error) {
	kind, name := object.GetKind(), object.GetName()
	if name == jobServiceObjects {
		return jobServicePlace(kind), nil
	}
	switch kind {
	case "Namespace": // the release's
		return place{}, nil
	case "CustomResourceDefinition":
		plural, _, _ := strings.Cut(name, ".")
		return place{"crds/" + plural + ".yaml", ".Values.crds.install"}, nil
	case "ServiceAccount":
		return place{file: "serviceaccount.yaml"}, nil
	case "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding":
		switch {
		case kind == "ClusterRole" && isUserRole(name):
			return place{"user-roles.yaml", ".Values.rbac.userRoles"}, nil
		case strings.HasPrefix(name, metricsObjects):
			return place{"metrics-rbac.yaml", ".Values.metrics.enabled"}, nil
		case strings.HasPrefix(name, webhookObjects):
			return place{"webhooks.yaml", ".Values.webhooks.enabled"}, nil
		}
		return place{file: "rbac.yaml"}, nil
	case "Deployment":
		return place{file: "deployment.yaml"}, nil
	case "Service":
		switch {
		case strings.HasSuffix(name, "-metrics-service"):
			return place{"metrics-service.yaml", ".Values.metrics.enabled"}, nil
		case strings.HasPrefix(name, webhookObjects):
			return place{"webhooks.yaml", ".Values.webhooks.enabled"}, nil
		}
	case "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding":
		return place{"admission-policy.yaml", `include "spot-training-operator.admissionPolicy" .`}, nil
	case "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
		return place{file: "node-agent-policy.yaml"}, nil
	case "ServiceMonitor":
		return place{"servicemonitor.yaml", "and .Values.metrics.enabled .Values.metrics.serviceMonitor.enabled"}, nil
	case "PrometheusRule":
		return place{"prometheusrule.yaml", "and .Values.metrics.enabled .Values.metrics.prometheusRule.enabled"}, nil
	case "ConfigMap":
		if dashboard, ok := strings.CutPrefix(name, dashboardObjects); ok {
			return place{"dashboard-" + dashboard + ".yaml", "and .Values.metrics.enabled .Values.metrics.dashboards.enabled"}, nil
		}
	case "NetworkPolicy":
		if strings.Contains(name, "webhook") {
			return place{"networkpolicy.yaml", "and .Values.networkPolicy.enabled .Values.webhooks.enabled"}, nil
		}
		return place{"networkpolicy.yaml", ".Values.networkPolicy.enabled"}, nil
	case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
		return place{"webhooks.yaml", ".Values.webhooks.enabled"}, nil
	}
	return place{}, fmt.Errorf("%s %s: say in placeOf in which file of the chart this object goes, and which value installs it", kind, name)
}

// isUserRole says whether a ClusterRole is for people who use the operator's kinds.
func isUserRole(name string) bool {
	for _, suffix := range []string{"-admin-role", "-editor-role", "-viewer-role"} {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

// template writes an object as a template.
func template(object *unstructured.Unstructured) (string, error) {
	e := &expressions{}
	content := object.DeepCopy().Object
	metadata := content["metadata"].(map[string]any)
	setLabels(e, metadata)
	var err error
	switch object.GetKind() {
	case "CustomResourceDefinition":
		keepOnRemoval(e, metadata)
	case "ServiceAccount":
		if object.GetName() == managerAccount {
			addField(e, metadata, "annotations", "serviceAccount.annotations")
		}
	case "ServiceMonitor":
		err = monitor(e, content)
	case "PrometheusRule":
		extend(e, metadata["labels"].(map[string]any), "metrics.prometheusRule.labels")
	case "ConfigMap":
		extend(e, metadata["labels"].(map[string]any), "metrics.dashboards.labels")
	case "Deployment":
		if object.GetName() == jobServiceObjects {
			err = jobService(e, content)
		} else {
			err = deployment(e, content)
		}
	}
	if err != nil {
		return "", err
	}
	return e.render(inNamespaceOfRelease(e, content).(map[string]any))
}

// setLabels has the chart's labels in the place of kustomize's.
func setLabels(e *expressions, metadata map[string]any) {
	labels, _ := metadata["labels"].(map[string]any)
	if labels == nil {
		labels = map[string]any{}
		metadata["labels"] = labels
	}
	delete(labels, "app.kubernetes.io/managed-by")
	e.field(labels, "app.kubernetes.io/name", `{{- include "spot-training-operator.labels" . | nindent +0 }}`)
}

// keepOnRemoval keeps a kind, and with it all objects of the kind, when the release is uninstalled.
func keepOnRemoval(e *expressions, metadata map[string]any) {
	annotations, _ := metadata["annotations"].(map[string]any)
	if annotations == nil {
		annotations = map[string]any{}
		metadata["annotations"] = annotations
	}
	e.field(annotations, "helm.sh/resource-policy", "{{- if .Values.crds.keep }}\nhelm.sh/resource-policy: keep\n{{- end }}")
}

func monitor(e *expressions, content map[string]any) error {
	labels, _, err := unstructured.NestedFieldNoCopy(content, "metadata", "labels")
	if err != nil {
		return err
	}
	extend(e, labels.(map[string]any), "metrics.serviceMonitor.labels")
	endpoints, _, err := unstructured.NestedFieldNoCopy(content, "spec", "endpoints")
	if err != nil {
		return err
	}
	for _, endpoint := range endpoints.([]any) {
		e.field(endpoint.(map[string]any), "interval",
			"{{- with .Values.metrics.serviceMonitor.interval }}\ninterval: {{ . }}\n{{- end }}")
	}
	return nil
}

// extend adds the entries of a value to those that an object has.
func extend(e *expressions, object map[string]any, value string) {
	e.field(object, "values", "{{- with .Values."+value+" }}\n{{- toYaml . | nindent +0 }}\n{{- end }}")
}

// addField adds a field with a value when the value is set.
func addField(e *expressions, object map[string]any, name, value string) {
	e.field(object, name, "{{- with .Values."+value+" }}\n"+name+":\n  {{- toYaml . | nindent +2 }}\n{{- end }}")
}

// inNamespaceOfRelease replaces kustomize's namespace wherever it is named.
func inNamespaceOfRelease(e *expressions, value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, child := range v {
			v[key] = inNamespaceOfRelease(e, child)
		}
	case []any:
		for i, child := range v {
			v[i] = inNamespaceOfRelease(e, child)
		}
	case string:
		if v == namespace {
			return e.inline("{{ .Release.Namespace | quote }}") // 2024 is a namespace, and a number
		}
		if strings.Contains(v, namespace) {
			return strings.ReplaceAll(v, namespace, e.inline("{{ .Release.Namespace }}"))
		}
	}
	return value
}
