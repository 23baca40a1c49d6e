package main

import (
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const jobServiceObjects = "spot-training-operator-job-service"

// Conditions of what is for the whole cluster: only a release that serves all namespaces has it.
const (
	wholeCluster   = "not .Values.namespaces"
	servesWebhooks = "and .Values.webhooks.enabled (not .Values.namespaces)"
)

// closesEgress is an expression for whether the release has egress policies.
const closesEgress = `(include "spot-training-operator.closesEgress" .)`

// places are the files of objects below templates/, and the conditions under which the objects are installed, by a pattern for
// KIND/NAME. The first that matches counts. No file: the chart leaves the object out.
var places = []struct {
	pattern    *regexp.Regexp
	file, when string
}{
	{match("NetworkPolicy/" + jobServiceObjects), "job-service.yaml", "and .Values.jobService.enabled .Values.networkPolicy.enabled"},
	{match("NetworkPolicy/.*-egress-job-service"), "job-service.yaml", "and .Values.jobService.enabled " + closesEgress},
	{match("ServiceMonitor/" + jobServiceObjects), "job-service.yaml", "and .Values.jobService.enabled .Values.metrics.enabled .Values.metrics.serviceMonitor.enabled"},
	{match("Role(Binding)?/" + jobServiceObjects + "-certificate"), "job-service.yaml", `include "spot-training-operator.makesJobServiceCertificate" .`},
	{match(".*/" + jobServiceObjects), "job-service.yaml", ".Values.jobService.enabled"},
	{match("Namespace/.*"), "", ""},
	{match(`CustomResourceDefinition/(\w+)\..*`), "crds/$1.yaml", ".Values.crds.install"},
	{match("ServiceAccount/.*-node-agent"), "serviceaccount.yaml", wholeCluster},
	{match("ServiceAccount/.*"), "serviceaccount.yaml", ""},
	{match("ClusterRole/.*-(admin|editor|viewer)-role"), "user-roles.yaml", ".Values.rbac.userRoles"},
	{match("(Cluster)?Role(Binding)?/spot-training-operator-metrics-.*"), "metrics-rbac.yaml", ".Values.metrics.enabled"},
	{match("((Cluster)?Role(Binding)?|Service)/spot-training-operator-webhook.*"), "webhooks.yaml", servesWebhooks},
	{match("(Cluster)?Role(Binding)?/spot-training-operator-namespaced-.*"), "namespaced-rbac.yaml", ".Values.namespaces"},
	{match("Role(Binding)?/spot-training-operator-leader-election-.*"), "rbac.yaml", ""},
	{match("(Cluster)?Role(Binding)?/.*"), "rbac.yaml", wholeCluster},
	{match("Deployment/.*"), "deployment.yaml", ""},
	{match("Service/.*-metrics-service"), "metrics-service.yaml", ".Values.metrics.enabled"},
	{match("MutatingAdmissionPolicy(Binding)?/.*"), "admission-policy.yaml", `include "spot-training-operator.admissionPolicy" .`},
	{match("ValidatingAdmissionPolicy(Binding)?/spot-training-operator-job-user"), "job-user-policy.yaml", wholeCluster},
	{match("ValidatingAdmissionPolicy(Binding)?/.*"), "node-agent-policy.yaml", wholeCluster},
	{match("ServiceMonitor/.*"), "servicemonitor.yaml", "and .Values.metrics.enabled .Values.metrics.serviceMonitor.enabled"},
	{match("PrometheusRule/.*"), "prometheusrule.yaml", "and .Values.metrics.enabled .Values.metrics.prometheusRule.enabled"},
	{match("ConfigMap/spot-training-operator-(dashboard-.*)"), "$1.yaml", "and .Values.metrics.enabled .Values.metrics.dashboards.enabled"},
	{match("NetworkPolicy/.*-egress-manager"), "networkpolicy.yaml", closesEgress},
	{match("NetworkPolicy/.*-egress-cloud"), "networkpolicy.yaml", "and " + closesEgress + " (.Values.networkPolicy.egress.cloud).enabled"},
	{match("NetworkPolicy/.*-egress-metadata-server"), "networkpolicy.yaml", "and " + closesEgress + " (.Values.networkPolicy.egress.cloud).metadataServer"},
	{match("NetworkPolicy/.*webhook.*"), "networkpolicy.yaml", "and .Values.networkPolicy.enabled .Values.webhooks.enabled (not .Values.namespaces)"},
	{match("NetworkPolicy/.*"), "networkpolicy.yaml", ".Values.networkPolicy.enabled"},
	{match("(Validating|Mutating)WebhookConfiguration/.*"), "webhooks.yaml", servesWebhooks},
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
