package nodeagent

import (
	"testing"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var settings = Settings{Namespace: "operator", Image: "operator:2"}

func managerDeployment() *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "operator", Name: ManagerName, UID: "uid-of-manager"}}
	d.Spec.Template.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	return d
}

func TestPlan(t *testing.T) {
	manager := managerDeployment()
	wanted := daemonSet(settings, manager)
	changed := func(change func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
		set := wanted.DeepCopy()
		set.Generation = 3
		change(set)
		return set
	}
	same := changed(func(*appsv1.DaemonSet) {})
	ending := changed(func(set *appsv1.DaemonSet) { set.DeletionTimestamp = &metav1.Time{} })
	ownerless := changed(func(set *appsv1.DaemonSet) { set.OwnerReferences = nil })
	otherOwner := changed(func(set *appsv1.DaemonSet) { set.OwnerReferences[0].UID = "uid-of-the-last" })
	unlabelled := changed(func(set *appsv1.DaemonSet) { set.Labels = nil })
	for name, test := range map[string]struct {
		observed observed
		want     desired
	}{
		"a cluster without spot has none":           {observed{}, desired{}},
		"a SpotInstanceVM wants one":                {observed{vms: 1, manager: manager}, desired{set: wanted}},
		"a spot node wants one":                     {observed{spotNodes: 1, manager: manager}, desired{set: wanted}},
		"without a Deployment it has no owner":      {observed{vms: 1}, desired{set: daemonSet(settings, nil)}},
		"it is as this manager wrote it":            {observed{vms: 1, manager: manager, existing: same, written: 3}, desired{}},
		"an earlier manager wrote it":               {observed{vms: 1, manager: manager, existing: same}, desired{set: wanted}},
		"it was changed":                            {observed{vms: 1, manager: manager, existing: same, written: 2}, desired{set: wanted}},
		"its owner was removed":                     {observed{vms: 1, manager: manager, existing: ownerless, written: 3}, desired{set: wanted}},
		"its labels were removed":                   {observed{vms: 1, manager: manager, existing: unlabelled, written: 3}, desired{set: wanted}},
		"the Deployment of the operator is another": {observed{vms: 1, manager: manager, existing: otherOwner, written: 3}, desired{set: wanted}},
		"nothing limits it":                         {observed{vms: 1, manager: manager, lack: "it"}, desired{}},
		"nothing limits it any more":                {observed{vms: 1, manager: manager, existing: same, written: 3, lack: "it"}, desired{remove: same}},
		"the last spot node and SpotInstanceVM go":  {observed{existing: same, written: 3}, desired{remove: same}},
		"it is being deleted and wanted again":      {observed{vms: 1, manager: manager, existing: ending}, desired{}},
		"it is being deleted and no longer wanted":  {observed{existing: ending}, desired{}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, plan(test.observed, settings)) })
	}
}

func TestTheDaemonSetFollowsItsSettingsAndTheManager(t *testing.T) {
	s := settings
	s.MetadataURL = "http://10.0.0.1:80"
	set := daemonSet(s, managerDeployment())
	pod := set.Spec.Template.Spec
	assert.Equal(t, []string{"node-agent", "--metadata-url=http://10.0.0.1:80"}, pod.Containers[0].Args)
	assert.Equal(t, "operator:2", pod.Containers[0].Image)
	assert.Equal(t, []corev1.LocalObjectReference{{Name: "registry"}}, pod.ImagePullSecrets)
	assert.Equal(t, []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: ManagerName, UID: "uid-of-manager"}}, set.OwnerReferences)
}

func TestIsSpot(t *testing.T) {
	for name, test := range map[string]struct {
		labels map[string]string
		want   bool
	}{
		"ours":                 {map[string]string{"training.dcnlab.com/spot-instance-vm": "gpu"}, true},
		"GKE's":                {map[string]string{"cloud.google.com/gke-spot": "true"}, true},
		"GKE's, provisioned":   {map[string]string{"cloud.google.com/gke-provisioning": "spot"}, true},
		"GKE's, preemptible":   {map[string]string{"cloud.google.com/gke-preemptible": "true"}, true},
		"another provisioning": {map[string]string{"cloud.google.com/gke-provisioning": "standard"}, false},
		"none":                 {nil, false},
	} {
		assert.Equal(t, test.want, isSpot(test.labels), name)
	}
	assert.Len(t, onSpotNodes().NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, len(spotLabels))
}
