//go:build olm

package olm

import (
	"context"
	"fmt"
	"testing"
	"time"

	operatorsv1 "github.com/operator-framework/api/pkg/operators/v1"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// name is what the catalog and the subscription are called.
const name = "spot-training-operator"

// csvName is the name of a version's ClusterServiceVersion.
func csvName(version string) string { return packageName + ".v" + version }

// installCatalog makes the operator's namespace, which enforces Pod Security restricted, with the catalog in it.
func installCatalog(t *testing.T, image string) {
	t.Helper()
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: operatorNamespace, Labels: map[string]string{
			"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted",
		}}},
		// All namespaces, since it names none.
		&operatorsv1.OperatorGroup{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: name}},
		&operatorsv1alpha1.CatalogSource{
			ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: name},
			Spec: operatorsv1alpha1.CatalogSourceSpec{
				SourceType: operatorsv1alpha1.SourceTypeGrpc, Image: image, DisplayName: "spot-training-operator", Publisher: "dcnlab",
				GrpcPodConfig: &operatorsv1alpha1.GrpcPodConfig{SecurityContextConfig: operatorsv1alpha1.Restricted},
				UpdateStrategy: &operatorsv1alpha1.UpdateStrategy{RegistryPoll: &operatorsv1alpha1.RegistryPoll{
					RawInterval: "15s", Interval: &metav1.Duration{Duration: 15 * time.Second},
				}},
			},
		},
	} {
		require.NoError(t, cluster.Create(t.Context(), object))
	}
	eventually(t, "the catalog is served", func(ctx context.Context) (bool, error) {
		var source operatorsv1alpha1.CatalogSource
		err := cluster.Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: name}, &source)
		if err != nil || source.Status.GRPCConnectionState == nil {
			return false, err
		}
		if state := source.Status.GRPCConnectionState.LastObservedState; state != "READY" {
			return false, fmt.Errorf("its state is %s, %s", state, source.Status.Message)
		}
		return true, nil
	})
}

// subscribe follows a channel from a version on, with upgrades by approval only.
func subscribe(t *testing.T, channel, version string) {
	t.Helper()
	require.NoError(t, cluster.Create(t.Context(), &operatorsv1alpha1.Subscription{
		ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: name},
		Spec: &operatorsv1alpha1.SubscriptionSpec{
			CatalogSource: name, CatalogSourceNamespace: operatorNamespace, Package: packageName, Channel: channel,
			StartingCSV: csvName(version), InstallPlanApproval: operatorsv1alpha1.ApprovalManual,
		},
	}))
}

func subscription(ctx context.Context) (*operatorsv1alpha1.Subscription, error) {
	var s operatorsv1alpha1.Subscription
	err := cluster.Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: name}, &s)
	return &s, err
}

// switchChannel makes the subscription follow another channel.
func switchChannel(t *testing.T, channel string) {
	t.Helper()
	s, err := subscription(t.Context())
	require.NoError(t, err)
	before := s.DeepCopy()
	s.Spec.Channel = channel
	require.NoError(t, cluster.Patch(t.Context(), s, client.MergeFrom(before)))
}

// offered waits until OLM offers a version for approval, and returns its InstallPlan.
func offered(t *testing.T, version string) *operatorsv1alpha1.InstallPlan {
	t.Helper()
	var plan operatorsv1alpha1.InstallPlan
	eventually(t, "version "+version+" is offered", func(ctx context.Context) (bool, error) {
		s, err := subscription(ctx)
		if err != nil {
			return false, err
		}
		if s.Status.InstallPlanRef == nil || s.Status.CurrentCSV != csvName(version) {
			return false, fmt.Errorf("the subscription is at %s (%s) %+v", s.Status.CurrentCSV, s.Status.State, s.Status.Conditions)
		}
		key := client.ObjectKey{Namespace: operatorNamespace, Name: s.Status.InstallPlanRef.Name}
		if err := cluster.Get(ctx, key, &plan); err != nil {
			return false, err
		}
		return len(plan.Spec.ClusterServiceVersionNames) == 1 && plan.Spec.ClusterServiceVersionNames[0] == csvName(version), nil
	})
	require.False(t, plan.Spec.Approved, "it waits for approval")
	return &plan
}

// approve lets an InstallPlan be carried out.
func approve(t *testing.T, plan *operatorsv1alpha1.InstallPlan) {
	t.Helper()
	before := plan.DeepCopy()
	plan.Spec.Approved = true
	require.NoError(t, cluster.Patch(t.Context(), plan, client.MergeFrom(before)))
}

// phase of a version's ClusterServiceVersion; empty when there is none.
func phase(ctx context.Context, version string) (operatorsv1alpha1.ClusterServiceVersionPhase, string, error) {
	var csv operatorsv1alpha1.ClusterServiceVersion
	err := cluster.Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: csvName(version)}, &csv)
	if apierrors.IsNotFound(err) {
		return "", "", nil
	}
	return csv.Status.Phase, csv.Status.Message, err
}

// succeeded waits until a version is installed, and the one before it is gone.
func succeeded(t *testing.T, version string) {
	t.Helper()
	eventually(t, "version "+version+" is installed", func(ctx context.Context) (bool, error) {
		s, err := subscription(ctx)
		if err != nil {
			return false, err
		}
		now, message, err := phase(ctx, version)
		if err != nil {
			return false, err
		}
		if now != operatorsv1alpha1.CSVPhaseSucceeded || s.Status.InstalledCSV != csvName(version) {
			return false, fmt.Errorf("its phase is %q: %s; installed is %s", now, message, s.Status.InstalledCSV)
		}
		var all operatorsv1alpha1.ClusterServiceVersionList
		if err := cluster.List(ctx, &all, client.InNamespace(operatorNamespace)); err != nil {
			return false, err
		}
		if len(all.Items) != 1 {
			return false, fmt.Errorf("%d versions are there", len(all.Items))
		}
		return true, nil
	})
}
