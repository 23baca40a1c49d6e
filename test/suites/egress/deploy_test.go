package egress_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
	"github.com/dcnlab/spot-training-operator/test/harness/installations"
	"github.com/dcnlab/spot-training-operator/test/harness/networkpolicy"
)

func TestMakeDeployAsksTheClusterWhereItsAPIServerIs(t *testing.T) {
	server := apiserver.Start(t, apiserver.Flag("endpoint-reconciler-type", "none"))
	c, err := client.New(server.Config(t), client.Options{})
	require.NoError(t, err)
	// In place of the server's own, which has the address of this machine.
	require.NoError(t, c.Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.2"}}, {Addresses: []string{"10.0.0.3"}}},
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To[int32](6444)}},
	}))
	folder := t.TempDir()
	kubeconfig := filepath.Join(folder, "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, server.Kubeconfig(), 0o600))
	command := exec.CommandContext(t.Context(), filepath.Join(apiserver.Root(), "hack", "deploy.sh"), "render")
	command.Env = append(
		os.Environ(), "KUBECONFIG="+kubeconfig, "BIN="+folder, "LOCALCLUSTER_BIN="+apiserver.Binaries(), "PATH="+apiserver.Binaries()+":"+os.Getenv("PATH"),
		"DEPLOY_COMPONENTS=job-service network-policy-egress",
	)
	text, err := command.Output()
	require.NoError(t, err)
	var policies networkpolicy.Policies
	for _, object := range installations.Decode(t, string(text)) {
		if object.GetKind() == "NetworkPolicy" {
			policies = append(policies, policyOf(t, object))
		}
	}
	installed := installations.Kustomize(t, "default", "job-service")
	w := newWorld(podsOf(installed), address("10.0.0.1"))
	for _, from := range []networkpolicy.End{w.manager, w.jobService} {
		for _, to := range []networkpolicy.Connection{
			tcp(from, w.apiServer, 443), tcp(from, address("10.0.0.2"), 6444), tcp(from, address("10.0.0.3"), 6444), udp(from, w.dns, 53),
		} {
			assert.True(t, policies.Allow(t, to), "%v", to.To)
		}
		for _, to := range []networkpolicy.Connection{
			tcp(from, address("192.0.2.1"), 443), tcp(from, address("10.0.0.2"), 6443), tcp(from, address("10.0.0.4"), 443),
		} {
			assert.False(t, policies.MayAllow(t, to), "%v", to.To)
		}
	}
}
