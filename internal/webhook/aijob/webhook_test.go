package aijob

import (
	"testing"

	"github.com/stretchr/testify/assert"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

func TestAGangIsToldOfVariablesThatHaveNoEffect(t *testing.T) {
	const (
		gang   = `{"spec": {"gang": {"enabled": true, "minMembers": 2}, "env": [{"name": "EPOCHS", "value": "3"}, {"name": "RANK", "value": "7"}]}}`
		single = `{"spec": {"env": [{"name": "RANK", "value": "7"}]}}`
	)
	for name, test := range map[string]struct {
		operation admissionv1.Operation
		resource  string
		object    string
		want      int
	}{
		"a gang":              {admissionv1.Create, "aijobs", gang, 1},
		"a job of one pod":    {admissionv1.Create, "aijobs", single, 0},
		"a later change":      {admissionv1.Update, "aijobs", gang, 0},
		"a workflow":          {admissionv1.Create, "agentworkflows", gang, 0},
		"what cannot be read": {admissionv1.Create, "aijobs", `{"spec": 1}`, 0},
		"a gang without env":  {admissionv1.Create, "aijobs", `{"spec": {"gang": {"enabled": true}}}`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, warnings := check(admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
				Operation: test.operation, Resource: metav1.GroupVersionResource{Resource: test.resource}, Object: runtime.RawExtension{Raw: []byte(test.object)},
			}})
			if assert.Len(t, warnings, test.want) && test.want > 0 {
				assert.Contains(t, warnings[0], "spec.env[RANK]: has no effect")
			}
		})
	}
}

func TestSettingsThatDoNotGoTogetherAreRefused(t *testing.T) {
	refused, _ := check(admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Resource: metav1.GroupVersionResource{Resource: "aijobs"},
		Object: runtime.RawExtension{Raw: []byte(`{"spec": {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}}`)},
	}})
	if assert.Len(t, refused, 1) {
		assert.Equal(t, "spec.volumeMounts[0].name", refused[0].Field)
		assert.Equal(t, "spec.volumes has no volume data: add it, or correct the name", refused[0].Message)
	}
}
