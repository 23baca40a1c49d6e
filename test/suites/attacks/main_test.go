// Package attacks_test tries the attacks of docs/security.md against what each way to install the operator really makes: its flags, roles,
// policies and webhooks, on a real API server, with the manager and the job service as the programs that they are. Where a defence does not
// depend on the installation, the suite holds that the installation does not turn it off, and the test of the code tries the attack.
//
// KUBEBUILDER_ASSETS is the folder of etcd, kube-apiserver, kube-controller-manager and kubectl; without it that of the local cluster is
// used. HELM is the helm command; without it .bin/helm, which make builds.
package attacks_test

import (
	"flag"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/dcnlab/spot-training-operator/test/harness/installations"
	"github.com/dcnlab/spot-training-operator/test/harness/operator"
)

// attack has the number of docs/security.md.
type attack struct {
	number int
	title  string
	// loosening are flags with which the operator's programs would let it succeed.
	loosening []string
	try       func(*cluster)
}

// attacks are tried beside each other.
var attacks = []attack{
	{1, "who may edit a namespace starts a machine that joins the cluster", nil, startsMachines},
	{2, "a machine asks for the certificate of another node, or once more for its own", nil, asksForCertificates},
	{3, "an instance in another project has our labels", nil, plantsAnInstanceElsewhere},
	{4, "an instance has the name of a Node that is there", nil, takesTheNameOfANode},
	{5, "a user has the operator's own identity act in another project, as another service account", nil, usesTheOperatorsIdentity},
	{6, "the token of a node agent is used for another Node", nil, marksAnotherNode},
	{7, "a checkpoint is pushed to an address of the node itself", []string{"insecure-registry"}, needsTheCheckpointAgent},
	{8, "archives of two namespaces have one name", nil, needsTheCheckpointAgent},
	{9, "the checkpoint agent of a node deletes a pod of another", nil, deletesAPodElsewhere},
	{10, "a user is forged, or missing, while the webhooks are away", []string{"job-service-account"}, hidesItsUser},
	{11, "a job is in a queue that does not select its namespace, or above its highest priority", nil, jumpsTheQueue},
	{12, "a token is forged", []string{"token-prefix", "token-max-lifetime", "hmac-secret-file", "without-access-review", "trial"}, forgesTokens},
	{13, "a tenant asks for the jobs of another", []string{"without-access-review", "trial"}, looksAtOthersJobs},
	{14, "a client floods the job service", []string{
		"max-open-jobs", "rate-limit-create", "rate-limit-jobs", "rate-limit-list", "rate-limit-other", "trusted-proxies",
	}, floods},
	{15, "a pod without credentials asks the webhooks, or reaches Ray", []string{"isolate-jobs"}, asksTheWebhooks},
}

// String is the name of its test.
func (a attack) String() string { return fmt.Sprintf("attack %d: %s", a.number, a.title) }

// form is a way to install the operator.
type form struct {
	*installations.Installation

	// policies says that its admission policies are installed with it. OLM cannot: docs/olm.md says what is lost, and how to add them.
	policies bool
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	flag.Parse()
	// The attacks wait more than they work: as many as there are go on at a time, however few processors there are.
	if err := flag.Set("test.parallel", strconv.Itoa(4*len(attacks))); err != nil {
		panic(err) // go test has this flag
	}
	m.Run()
}

func TestAttacksFailHoweverTheOperatorIsInstalled(t *testing.T) {
	checkpointAgent := installations.Objects(t, "checkpoint-agent")
	for name, f := range map[string]form{
		"kustomize":                      {installations.Kustomize(t, "default", "job-service"), true},
		"kustomize in another namespace": {installations.KustomizeIn(t, "elsewhere", "default", "job-service"), true},
		"chart":                          {installations.Chart(t, "trainers", "--set=jobService.enabled=true"), true},
		"bundle":                         {installations.Bundle(t), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t, f)
			c.checkpointAgent = checkpointAgent
			c.waiting = c.prepareWithoutWebhooks()
			t.Run(attacks[9].String()+", before a manager runs", func(t *testing.T) { c.in(t).forgesAUser() })
			c.startManager()
			c.startJobService()
			t.Run("as it is installed", func(t *testing.T) {
				for _, attack := range attacks {
					t.Run(attack.String(), func(t *testing.T) {
						t.Parallel()
						c := c.in(t)
						c.hasNot(attack.loosening)
						attack.try(c)
					})
				}
			})
			if !c.form.policies {
				t.Run("with the policies of docs/olm.md", func(t *testing.T) { c.in(t).withPolicies() })
			}
		})
	}
}

// withPolicies adds to what OLM installs the admission policies that it cannot install, as docs/olm.md says, and tries again what they hold.
func (c *cluster) withPolicies() {
	c.manager.Stop()
	c.form.policies = true
	for _, object := range installations.Files(c.t, c.form.Namespace,
		"node-agent/policy.yaml", "node-agent/role.yaml", "node-binding/policy.yaml", "job-user/policy.yaml", "node-join/policy.yaml") {
		c.create(object)
	}
	managerIsLimited(c)
	marksAnotherNode(c)
	c.forgesAUser()
}

// A flag that is renamed would not be found.
func TestTheFlagsThatLoosenADefenceExist(t *testing.T) {
	help := ""
	for _, program := range []string{"manager", "job-service", "container-checkpoint-agent"} {
		text, err := exec.CommandContext(t.Context(), operator.Program(t), program, "--help").CombinedOutput()
		require.NoError(t, err)
		help += string(text)
	}
	for i, attack := range attacks {
		assert.Equal(t, i+1, attack.number)
		for _, flag := range attack.loosening {
			assert.Contains(t, help, " --"+flag+" ")
		}
	}
}

// hasNot checks that no program of the installation has a flag, nor the checkpoint agent that can be added to it.
func (c *cluster) hasNot(flags []string) {
	c.t.Helper()
	for _, argument := range slices.Concat(
		installations.Arguments(&c.form.Manager), installations.Arguments(&c.form.JobService), c.checkpointAgentArguments(),
	) {
		name, _, _ := strings.Cut(argument, "=")
		for _, flag := range flags {
			assert.NotEqual(c.t, "--"+flag, name)
		}
	}
}
