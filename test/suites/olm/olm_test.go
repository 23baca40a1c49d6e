//go:build olm

package olm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

const (
	// installLimit is how long an installation may take on a node that has the images' sources in its registry.
	installLimit = time.Minute
	// gapLimit is how long the operator may do nothing while one version takes over from the other.
	gapLimit = 15 * time.Second
	// epochs of the job that trains meanwhile.
	epochs = 48
)

// story tells what happened and when.
type story struct {
	t     *testing.T
	begin time.Time
}

func (s *story) tell(format string, arguments ...any) {
	s.t.Helper()
	s.t.Logf("[%6.1fs] %s", time.Since(s.begin).Seconds(), fmt.Sprintf(format, arguments...))
}

// phases tells each phase that a version's ClusterServiceVersion goes through, until the function is called.
func (s *story) phases(version string) (end func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		last := operatorsv1alpha1.ClusterServiceVersionPhase("none")
		for ctx.Err() == nil {
			if now, _, err := phase(ctx, version); err == nil && now != last && now != "" {
				s.tell("    %s is %s", csvName(version), now)
				last = now
			}
			select {
			case <-ctx.Done():
			case <-time.After(poll):
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// TestFromFirstInstallationToRemoval is one story: what comes later builds on what came before.
func TestFromFirstInstallationToRemoval(t *testing.T) {
	var (
		versions             = strings.Fields(env(t, "VERSIONS"))
		first, second, third = versions[0], versions[1], versions[2]
		present, next        = versions[len(versions)-1], env(t, "NEXT_VERSION")
		s                    = &story{t: t, begin: time.Now()}
	)
	require.NoError(t, cluster.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: userNamespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}))
	before := inventory(t)

	installCatalog(t, env(t, "CATALOG_IMAGE"))
	s.tell("the catalog is served")
	install(t, s, first)

	job := longJob(epochs)
	require.NoError(t, cluster.Create(t.Context(), job))
	eventually(t, "the job trains", func(ctx context.Context) (bool, error) {
		err := cluster.Get(ctx, client.ObjectKeyFromObject(job), job)
		return job.Status.State == mlv1.StateRunning && job.Status.CurrentEpoch >= 2, err
	})
	training, beats := observe(t, job), takePulse(t)
	s.tell("the job trains, its pods are %v", training.pods)
	require.Equal(t, []string{"v1beta1"}, storedVersions(t), "the first version stores an older one")

	block := blockMigration(t)
	upgrade(t, s, second, beats)
	assertUpgradeIsHeldBack(t, s, second, third)
	require.NoError(t, cluster.Delete(t.Context(), block))
	s.tell("objects can be migrated again")
	finishUpgrade(t, s, third, beats)
	assert.Equal(t, []string{"v1"}, storedVersions(t))
	training.assertUnharmed(t)
	for _, version := range versions[3:] {
		upgrade(t, s, version, beats)
		training.assertUnharmed(t)
	}

	pushUpdate(t, s)
	assertNothingNewInChannel(t, present)
	switchChannel(t, "candidate")
	s.tell("the subscription follows the channel candidate")
	upgrade(t, s, next, beats)

	state, progress := training.says()
	s.tell("the job is %s at %d%%", state, progress)
	eventually(t, "the job is Completed", func(ctx context.Context) (bool, error) {
		err := cluster.Get(ctx, client.ObjectKeyFromObject(job), job)
		return job.Status.State == mlv1.StateCompleted, err
	})
	training.end()
	beats.end()
	training.assertUnharmed(t)
	assert.Zero(t, job.Status.RestartCount)
	require.NotNil(t, job.Status.Checkpoint)
	s.tell("the job is Completed: %d epochs, %d restarts, the same pods from first to last", job.Status.CurrentEpoch, job.Status.RestartCount)

	uninstall(t, s, next)
	assert.Empty(t, leftovers(before, inventory(t)), "what the operator left behind")
	assertUsersKeepTheirs(t, job)
	s.tell("nothing of the operator is left; jobs and checkpoints are")
}

// install installs the first version.
func install(t *testing.T, s *story, version string) {
	t.Helper()
	begin := time.Now()
	subscribe(t, "stable", version)
	end := s.phases(version)
	approve(t, offered(t, version))
	succeeded(t, version)
	end()
	took := time.Since(begin)
	s.tell("version %s is installed, %.1f s after the subscription", version, took.Seconds())
	assert.Less(t, took, installLimit)
}

// upgrade approves a version that is offered and waits until it is installed.
func upgrade(t *testing.T, s *story, version string, beats *pulse) {
	t.Helper()
	plan := offered(t, version)
	s.tell("version %s is offered", version)
	beats.longestGap()
	begin, end := time.Now(), s.phases(version)
	approve(t, plan)
	succeeded(t, version)
	end()
	s.tell("version %s is installed, %.1f s after its approval", version, time.Since(begin).Seconds())
	assertNoGap(t, s, beats)
}

// assertNoGap fails when the operator has done nothing for too long. The pulse has gone on for a few beats more than it
// takes to see a reconciliation of the new version.
func assertNoGap(t *testing.T, s *story, beats *pulse) {
	t.Helper()
	seen := time.Now()
	eventually(t, "the new version reconciles", func(context.Context) (bool, error) {
		beats.mutex.Lock()
		defer beats.mutex.Unlock()
		return beats.moved.After(seen), nil
	})
	gap := beats.longestGap()
	s.tell("    the longest time without a reconciliation meanwhile: %.1f s", gap.Seconds())
	assert.Less(t, gap, gapLimit)
}

// storedVersions of TrainingJobs.
func storedVersions(t *testing.T) []string {
	t.Helper()
	var crd apiextensionsv1.CustomResourceDefinition
	require.NoError(t, cluster.Get(t.Context(), client.ObjectKey{Name: "trainingjobs.ml.example.com"}, &crd))
	return crd.Status.StoredVersions
}

// blockMigration has the API server refuse every change of TrainingJobs by the manager, so that it cannot migrate them.
// Their status is not concerned.
func blockMigration(t *testing.T) client.Object {
	t.Helper()
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "olm-e2e-block"},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
					Rule: admissionregistrationv1.Rule{
						APIGroups: []string{"ml.example.com"}, APIVersions: []string{"*"}, Resources: []string{"trainingjobs"},
					},
				},
			}}},
			MatchConditions: []admissionregistrationv1.MatchCondition{{
				Name: "manager", Expression: fmt.Sprintf("request.userInfo.username.startsWith('system:serviceaccount:%s:')", operatorNamespace),
			}},
			Validations: []admissionregistrationv1.Validation{{Expression: "false", Message: "blocked by the test"}},
		},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: policy.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	require.NoError(t, cluster.Create(t.Context(), policy))
	require.NoError(t, cluster.Create(t.Context(), binding))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_ = cluster.Delete(ctx, policy)
		_ = cluster.Delete(ctx, binding)
	})
	return binding
}

// assertUpgradeIsHeldBack approves the third version while objects cannot be migrated: OLM has to wait.
func assertUpgradeIsHeldBack(t *testing.T, s *story, second, third string) {
	t.Helper()
	upgradeable := func(ctx context.Context) (*metav1.Condition, error) {
		var condition operatorsv2.OperatorCondition
		err := cluster.Get(ctx, client.ObjectKey{Namespace: operatorNamespace, Name: csvName(second)}, &condition)
		return meta.FindStatusCondition(condition.Spec.Conditions, operatorsv2.Upgradeable), err
	}
	eventually(t, "the operator asks not to be upgraded", func(ctx context.Context) (bool, error) {
		condition, err := upgradeable(ctx)
		return condition != nil && condition.Status == metav1.ConditionFalse, err
	})
	condition, err := upgradeable(t.Context())
	require.NoError(t, err)
	s.tell("Upgradeable is %s: %s: %s", condition.Status, condition.Reason, condition.Message)
	approve(t, offered(t, third))
	s.tell("version %s is approved all the same", third)
	held := func(ctx context.Context) (bool, error) {
		// OLM has carried out the plan, and does not let the version take over.
		now, message, err := phase(ctx, third)
		return now == operatorsv1alpha1.CSVPhasePending && strings.Contains(strings.ToLower(message), "upgradeable"), err
	}
	eventually(t, "OLM holds version "+third+" back", func(ctx context.Context) (bool, error) {
		if met, err := held(ctx); met || err != nil {
			return met, err
		}
		now, message, err := phase(ctx, third)
		if err == nil {
			err = fmt.Errorf("version %s is %q: %s", third, now, message)
		}
		return false, err
	})
	_, message, err := phase(t.Context(), third)
	require.NoError(t, err)
	s.tell("    %s is held back: %s", csvName(third), message)
	var deployment appsv1.Deployment
	key := client.ObjectKey{Namespace: operatorNamespace, Name: "spot-training-operator-controller-manager"}
	require.NoError(t, cluster.Get(t.Context(), key, &deployment))
	assert.Contains(t, deployment.Spec.Template.Spec.Containers[0].Image, ":v"+second, "it stays in charge")
	assert.Positive(t, deployment.Status.ReadyReplicas)
}

// finishUpgrade waits until a version that was held back is installed.
func finishUpgrade(t *testing.T, s *story, version string, beats *pulse) {
	t.Helper()
	beats.longestGap()
	begin, end := time.Now(), s.phases(version)
	succeeded(t, version)
	end()
	s.tell("version %s is installed, %.1f s after objects could be migrated", version, time.Since(begin).Seconds())
	assertNoGap(t, s, beats)
}

// catalogPods are the ready pods that serve the catalog.
func catalogPods(ctx context.Context) (map[types.UID]bool, error) {
	var list corev1.PodList
	err := cluster.List(ctx, &list, client.InNamespace(operatorNamespace), client.MatchingLabels{"olm.catalogSource": name})
	pods := map[types.UID]bool{}
	for _, pod := range list.Items {
		if statuses := pod.Status.ContainerStatuses; pod.DeletionTimestamp == nil && len(statuses) == 1 && statuses[0].Ready {
			pods[pod.UID] = true
		}
	}
	return pods, err
}

// pushUpdate puts a newer catalog in the place of the one that is served and waits until OLM has noticed.
func pushUpdate(t *testing.T, s *story) {
	t.Helper()
	before, err := catalogPods(t.Context())
	require.NoError(t, err)
	command := exec.CommandContext(t.Context(), "/bin/sh", "-c", env(t, "PUSH_UPDATE"))
	command.Stdout, command.Stderr = os.Stderr, os.Stderr
	require.NoError(t, command.Run(), "push the newer catalog")
	s.tell("a newer catalog was pushed")
	eventually(t, "OLM serves the newer catalog", func(ctx context.Context) (bool, error) {
		now, err := catalogPods(ctx)
		for pod := range before {
			if now[pod] {
				return false, err
			}
		}
		return len(now) == 1, err
	})
	s.tell("OLM has noticed and serves it")
}

// assertNothingNewInChannel sees that the channel of the subscription offers nothing.
func assertNothingNewInChannel(t *testing.T, version string) {
	t.Helper()
	sub, err := subscription(t.Context())
	require.NoError(t, err)
	assert.Equal(t, csvName(version), sub.Status.CurrentCSV)
	assert.EqualValues(t, operatorsv1alpha1.SubscriptionStateAtLatest, sub.Status.State)
}

// uninstall removes the operator as docs/olm.md says.
func uninstall(t *testing.T, s *story, version string) {
	t.Helper()
	sub, err := subscription(t.Context())
	require.NoError(t, err)
	require.NoError(t, cluster.Delete(t.Context(), sub))
	csv := &operatorsv1alpha1.ClusterServiceVersion{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: csvName(version)}}
	require.NoError(t, cluster.Delete(t.Context(), csv))
	eventually(t, "the manager is gone", func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		err := cluster.List(ctx, &pods, client.InNamespace(operatorNamespace), client.MatchingLabels{"control-plane": "controller-manager"})
		return len(pods.Items) == 0, err
	})
	s.tell("the operator is removed")
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: operatorNamespace}}
	require.NoError(t, cluster.Delete(t.Context(), ns, &client.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}))
	eventually(t, "its namespace is gone", func(ctx context.Context) (bool, error) {
		err := cluster.Get(ctx, client.ObjectKeyFromObject(ns), ns)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

// assertUsersKeepTheirs looks for the job, its claim and the volume with the checkpoints.
func assertUsersKeepTheirs(t *testing.T, job *mlv1.TrainingJob) {
	t.Helper()
	require.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(job), job))
	assert.Equal(t, mlv1.StateCompleted, job.Status.State)
	var claim corev1.PersistentVolumeClaim
	require.NoError(t, cluster.Get(t.Context(), client.ObjectKey{Namespace: userNamespace, Name: job.Status.Checkpoint.ClaimName}, &claim))
	assert.Equal(t, corev1.ClaimBound, claim.Status.Phase)
	var volume corev1.PersistentVolume
	require.NoError(t, cluster.Get(t.Context(), client.ObjectKey{Name: claim.Spec.VolumeName}, &volume))
}
