package main

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// namespace is the one of kustomize, which is replaced by that of the release.
	namespace         = "spot-training-operator-system"
	managerAccount    = "spot-training-operator-controller-manager"
	jobServiceObjects = "spot-training-operator-job-service"
)

// places are the files of objects below templates/, and the conditions under which the objects are installed, by a pattern for
// KIND/NAME. The first that matches counts. No file: the chart leaves the object out.
var places = []struct {
	pattern    *regexp.Regexp
	file, when string
}{
	{match("NetworkPolicy/" + jobServiceObjects), "job-service.yaml", "and .Values.jobService.enabled .Values.networkPolicy.enabled"},
	{match("ServiceMonitor/" + jobServiceObjects), "job-service.yaml", "and .Values.jobService.enabled .Values.metrics.enabled .Values.metrics.serviceMonitor.enabled"},
	{match(".*/" + jobServiceObjects), "job-service.yaml", ".Values.jobService.enabled"},
	{match("Namespace/.*"), "", ""},
	{match(`CustomResourceDefinition/(\w+)\..*`), "crds/$1.yaml", ".Values.crds.install"},
	{match("ServiceAccount/.*"), "serviceaccount.yaml", ""},
	{match("ClusterRole/.*-(admin|editor|viewer)-role"), "user-roles.yaml", ".Values.rbac.userRoles"},
	{match("(Cluster)?Role(Binding)?/spot-training-operator-metrics-.*"), "metrics-rbac.yaml", ".Values.metrics.enabled"},
	{match("((Cluster)?Role(Binding)?|Service)/spot-training-operator-webhook.*"), "webhooks.yaml", ".Values.webhooks.enabled"},
	{match("(Cluster)?Role(Binding)?/.*"), "rbac.yaml", ""},
	{match("Deployment/.*"), "deployment.yaml", ""},
	{match("Service/.*-metrics-service"), "metrics-service.yaml", ".Values.metrics.enabled"},
	{match("MutatingAdmissionPolicy(Binding)?/.*"), "admission-policy.yaml", `include "spot-training-operator.admissionPolicy" .`},
	{match("ValidatingAdmissionPolicy(Binding)?/.*"), "node-agent-policy.yaml", ""},
	{match("ServiceMonitor/.*"), "servicemonitor.yaml", "and .Values.metrics.enabled .Values.metrics.serviceMonitor.enabled"},
	{match("PrometheusRule/.*"), "prometheusrule.yaml", "and .Values.metrics.enabled .Values.metrics.prometheusRule.enabled"},
	{match("ConfigMap/spot-training-operator-(dashboard-.*)"), "$1.yaml", "and .Values.metrics.enabled .Values.metrics.dashboards.enabled"},
	{match("NetworkPolicy/.*webhook.*"), "networkpolicy.yaml", "and .Values.networkPolicy.enabled .Values.webhooks.enabled"},
	{match("NetworkPolicy/.*"), "networkpolicy.yaml", ".Values.networkPolicy.enabled"},
	{match("(Validating|Mutating)WebhookConfiguration/.*"), "webhooks.yaml", ".Values.webhooks.enabled"},
}

func match(pattern string) *regexp.Regexp { return regexp.MustCompile("^" + pattern + "$") }

// placeOf returns an error for an object without a place, so that a new kind or Service needs a decision.
func placeOf(o *unstructured.Unstructured) (file, when string, err error) {
	name := o.GetKind() + "/" + o.GetName()
	for _, place := range places {
		if place.pattern.MatchString(name) {
			return place.pattern.ReplaceAllString(name, place.file), place.when, nil
		}
	}
	return "", "", fmt.Errorf("%s: add to places in which file of the chart this object goes, and which value installs it", name)
}

func template(o *unstructured.Unstructured) (string, error) {
	e := &expressions{}
	content := o.DeepCopy().Object
	metadata := content["metadata"].(object)
	setLabels(e, metadata)
	var err error
	switch o.GetKind() {
	case "CustomResourceDefinition":
		keepOnRemoval(e, metadata)
	case "ServiceAccount":
		if o.GetName() == managerAccount {
			addField(e, metadata, "annotations", "serviceAccount.annotations")
		}
	case "ServiceMonitor":
		err = monitor(e, content)
	case "PrometheusRule":
		extend(e, metadata["labels"].(object), "metrics.prometheusRule.labels")
	case "ConfigMap":
		extend(e, metadata["labels"].(object), "metrics.dashboards.labels")
	case "Deployment":
		if o.GetName() == jobServiceObjects {
			err = jobService(e, content)
		} else {
			err = manager(e, content)
		}
	}
	if err != nil {
		return "", err
	}
	return e.render(inNamespaceOfRelease(e, content).(object))
}

func setLabels(e *expressions, metadata object) {
	labels := entriesOf(metadata, "labels")
	delete(labels, "app.kubernetes.io/managed-by")
	e.field(labels, "app.kubernetes.io/name", `{{- include "spot-training-operator.labels" . | nindent +0 }}`)
}

// keepOnRemoval keeps a kind, and with it all objects of the kind, when the release is uninstalled.
func keepOnRemoval(e *expressions, metadata object) {
	e.field(entriesOf(metadata, "annotations"), "helm.sh/resource-policy", "{{- if .Values.crds.keep }}\nhelm.sh/resource-policy: keep\n{{- end }}")
}

// entriesOf returns the labels or annotations, which are added when there are none.
func entriesOf(metadata object, field string) object {
	if _, ok := metadata[field].(object); !ok {
		metadata[field] = object{}
	}
	return metadata[field].(object)
}

func monitor(e *expressions, content object) error {
	extend(e, content["metadata"].(object)["labels"].(object), "metrics.serviceMonitor.labels")
	endpoints, _, err := unstructured.NestedFieldNoCopy(content, "spec", "endpoints")
	if err != nil {
		return err
	}
	for _, endpoint := range endpoints.([]any) {
		e.field(endpoint.(object), "interval",
			"{{- with .Values.metrics.serviceMonitor.interval }}\ninterval: {{ . }}\n{{- end }}")
	}
	return nil
}

// extend adds the entries of a value to those that an object has.
func extend(e *expressions, o object, value string) {
	e.field(o, "values", "{{- with .Values."+value+" }}\n{{- toYaml . | nindent +0 }}\n{{- end }}")
}

// addField adds a field with a value when the value is set.
func addField(e *expressions, o object, name, value string) {
	e.field(o, name, "{{- with .Values."+value+" }}\n"+name+":\n  {{- toYaml . | nindent +2 }}\n{{- end }}")
}

// inNamespaceOfRelease replaces kustomize's namespace wherever it occurs.
func inNamespaceOfRelease(e *expressions, value any) any {
	switch v := value.(type) {
	case object:
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
