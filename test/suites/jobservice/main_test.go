// Package jobservice_test runs the job service as the program that it is, against a real API server where it needs one. The tests play the
// controllers of AIJobs.
package jobservice_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
	"github.com/dcnlab/spot-training-operator/test/harness/jobservice"
	"github.com/dcnlab/spot-training-operator/test/harness/operator"
)

const (
	root     = "../../.."
	patience = 3 * time.Minute
	secret   = "a secret of more than thirty-two bytes"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// cluster is a real API server.
type cluster struct {
	client.Client

	t          *testing.T
	kubeconfig string
	program    string
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	server := apiserver.Start(t, apiserver.OwnCRDs)
	c := &cluster{t: t, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), program: operator.Program(t)}
	require.NoError(t, os.WriteFile(c.kubeconfig, server.Kubeconfig(), 0o600))
	var err error
	c.Client, err = client.New(server.Config(t), client.Options{Scheme: apiserver.Scheme(aiplatformv1alpha1.AddToScheme)})
	require.NoError(t, err)
	return c
}

// in is the cluster for a part of a test.
func (c *cluster) in(t *testing.T) *cluster {
	next := *c
	next.t = t
	return &next
}

// service of this cluster, on trial.
func (c *cluster) service(args ...string) *jobservice.Service {
	c.t.Helper()
	s := jobservice.Start(c.t, c.program, nil, append([]string{
		"--trial", "--kubernetes", "--kubeconfig=" + c.kubeconfig, "--data-dir=" + c.t.TempDir(), "--visibility-timeout=2s",
	}, args...)...)
	s.Token = s.PrintedToken()
	return s
}

// aijob waits for the AIJob of a job.
func (c *cluster) aijob(id string) *aiplatformv1alpha1.AIJob {
	c.t.Helper()
	aijob := &aiplatformv1alpha1.AIJob{}
	require.EventuallyWithT(c.t, func(t *assert.CollectT) {
		require.NoError(t, c.Get(c.t.Context(), client.ObjectKey{Namespace: "default", Name: "job-" + id}, aijob))
	}, patience, 50*time.Millisecond)
	return aijob
}

// reaches writes the status of an AIJob as its controller would.
func (c *cluster) reaches(id string, phase aiplatformv1alpha1.AIJobPhase, outputs map[string]string) {
	c.t.Helper()
	aijob := c.aijob(id)
	before := aijob.DeepCopy()
	aijob.Status.Phase, aijob.Status.Outputs = phase, outputs
	if phase != aiplatformv1alpha1.AIJobRunning {
		now := metav1.Now()
		aijob.Status.CompletionTime = &now
	}
	require.NoError(c.t, c.Status().Patch(c.t.Context(), aijob, client.MergeFrom(before)))
}

// account makes a ServiceAccount that may submit and read jobs where it is, when allowed, and returns a token of it for an audience.
func (c *cluster) account(name, audience string, allowed bool) string {
	c.t.Helper()
	ctx := c.t.Context()
	meta := metav1.ObjectMeta{Namespace: "default", Name: name}
	account := &corev1.ServiceAccount{ObjectMeta: meta}
	require.NoError(c.t, client.IgnoreAlreadyExists(c.Create(ctx, account)))
	if allowed {
		objects := []client.Object{
			&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
				APIGroups: []string{aiplatformv1alpha1.GroupName}, Resources: []string{"aijobs"}, Verbs: []string{"create", "get", "list", "delete"},
			}}},
			&rbacv1.RoleBinding{
				ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
				Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: "default"}},
			},
		}
		for _, object := range objects {
			require.NoError(c.t, client.IgnoreAlreadyExists(c.Create(ctx, object)))
		}
	}
	request := &authenticationv1.TokenRequest{}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	require.NoError(c.t, c.SubResource("token").Create(context.WithoutCancel(ctx), account, request))
	return request.Status.Token
}
