package checks

import (
	"errors"
	"fmt"
	"regexp"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/dcnlab/spot-training-operator/scorecard/internal/cluster"
)

func alertsComplete(env *cluster.Env) {
	var rules []rule
	for _, object := range env.Bundle.ObjectsOf("PrometheusRule") {
		found, err := alertsOf(object.Object)
		env.Checkf(err, "read PrometheusRule %s of the bundle", object.GetName())
		rules = append(rules, found...)
	}
	env.Logf("the bundle has %d alerts", len(rules))
	env.Check(errors.Join(alertProblems(rules)...))
}

type rule struct {
	Alert       string            `json:"alert"`
	Expr        any               `json:"expr"` // text, or a number
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func alertsOf(object map[string]any) (alerts []rule, err error) {
	var content struct {
		Spec struct {
			Groups []struct {
				Rules []rule `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &content); err != nil {
		return nil, err
	}
	for _, group := range content.Spec.Groups {
		for _, rule := range group.Rules {
			if rule.Alert != "" {
				alerts = append(alerts, rule)
			}
		}
	}
	return alerts, nil
}

// ours finds a metric of the operator in an expression.
var ours = regexp.MustCompile(`\b(trainingjob|aijob|spotinstance|controller_runtime|workqueue|leader_election|rest_client)_\w+`)

func alertProblems(alerts []rule) (wrong []error) {
	onJobs := false
	for _, alert := range alerts {
		metric := ours.FindStringSubmatch(fmt.Sprint(alert.Expr))
		if metric == nil {
			wrong = append(wrong, cluster.Failf("alert %s uses none of the operator's metrics: %v", alert.Alert, alert.Expr))
		} else if metric[1] == "trainingjob" {
			onJobs = true
		}
		for _, missing := range []struct{ name, value string }{
			{"the label severity", alert.Labels["severity"]},
			{"the annotation summary", alert.Annotations["summary"]},
			{"the annotation runbook_url", alert.Annotations["runbook_url"]},
		} {
			if missing.value == "" {
				wrong = append(wrong, cluster.Failf("alert %s lacks %s", alert.Alert, missing.name))
			}
		}
	}
	if !onJobs {
		wrong = append(wrong, cluster.Failf("the bundle has no alert on TrainingJobs").Try("Add a PrometheusRule to the bundle."))
	}
	return wrong
}
