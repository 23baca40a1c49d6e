package nodejoin

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

const testToken = "abcdef.0123456789abcdef"

// testJoin is a joining with everything in it.
func testJoin() Join {
	return Join{
		Instance: Instance{
			Name: "t4-a1b2c", VM: types.NamespacedName{Namespace: "team-a", Name: "t4"},
			Labels: map[string]string{"example.com/zone": "us-central1-a"},
			Taints: []corev1.Taint{{Key: "nvidia.com/gpu", Value: "present", Effect: corev1.TaintEffectNoSchedule}}, ProviderID: "gce://project/us-central1-a/t4-a1b2c",
		},
		Cluster: Cluster{Endpoint: "10.0.0.2:6443", CACertHash: "sha256:" + strings.Repeat("ab", 32), Token: testToken},
	}
}

// machine is a folder in which scripts find the programs, and leave the traces, of an instance.
type machine struct {
	t   *testing.T
	dir string
}

func newMachine(t *testing.T) machine {
	m := machine{t, t.TempDir()}
	m.program("kubeadm", `case $1 in
version) echo "${KUBEADM_VERSION:-v1.36.3}" ;;
join)
  cp "$3" "$ROOT/config"
  echo join >>"$ROOT/calls"
  echo "I have read abcdef.0123456789abcdef"
  if [[ -e $ROOT/broken ]]; then exit 3; fi
  mkdir -p "$ROOT/etc/kubernetes"
  echo done >"$ROOT/etc/kubernetes/kubelet.conf"
  ;;
reset) echo reset >>"$ROOT/calls" && rm -rf "$ROOT/etc/kubernetes" ;;
esac`)
	m.program("sleep", "true")
	return m
}

func (m machine) program(name, text string) {
	require.NoError(m.t, os.MkdirAll(filepath.Join(m.dir, "bin"), 0o755))
	require.NoError(m.t, os.WriteFile(filepath.Join(m.dir, "bin", name), []byte("#!/bin/bash\n"+text+"\n"), 0o755))
}

// run runs a script as the guest agent does, with the folders of the system inside of the machine's own.
func (m machine) run(text string, environment ...string) (output string, err error) {
	text = strings.NewReplacer(
		"/var/lib/", m.dir+"/var/lib/", "/etc/kubernetes", m.dir+"/etc/kubernetes", "PATH=/usr/local/sbin:", "PATH="+m.dir+"/bin:",
	).Replace(text)
	path := filepath.Join(m.dir, "script")
	require.NoError(m.t, os.WriteFile(path, []byte(text), 0o700))
	cmd := exec.CommandContext(m.t.Context(), path)
	cmd.Env = append(append(os.Environ(), "ROOT="+m.dir), environment...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (m machine) read(name string) string {
	content, _ := os.ReadFile(filepath.Join(m.dir, name))
	return string(content)
}

func specWith(script string) *spotv1alpha1.SpotInstanceVMSpec {
	return &spotv1alpha1.SpotInstanceVMSpec{StartupScript: script, JoinTimeout: metav1.Duration{Duration: time.Minute}}
}

func script4(t *testing.T, script string) string {
	t.Helper()
	text, err := startupScript(testJoin(), specWith(script))
	require.NoError(t, err)
	return text
}

func TestStartupScriptPreparesThenJoinsAndDoesNothingAtARestart(t *testing.T) {
	m := newMachine(t)
	text := script4(t, "echo preparing; echo prepared >>\"$ROOT/prepared\"\numask >\"$ROOT/umask\"")
	output, err := m.run(text)
	require.NoError(t, err, output)
	assert.Less(t, strings.Index(output, "preparing"), strings.Index(output, "kubeadm join to 10.0.0.2:6443 as node t4-a1b2c, attempt 1"))
	assert.Contains(t, output, "spot-training-operator: joined")
	assert.NotContains(t, output, "0123456789abcdef", "the token is in the output")
	assert.Contains(t, output, "I have read abcdef.[redacted]")
	assert.Equal(t, "0022\n", m.read("umask"))

	again, err := m.run(text)
	require.NoError(t, err, again)
	assert.Contains(t, again, "this instance is a node already")
	assert.Equal(t, "prepared\n", m.read("prepared"))
	assert.Equal(t, "join\n", m.read("calls"))
}

func TestStartupScriptRunsByItsOwnInterpreterAsItWasWritten(t *testing.T) {
	m := newMachine(t)
	odd := "#!/usr/bin/python3\nimport os\nopen(os.environ['ROOT'] + '/odd', 'w').write('STARTUP_SCRIPT\\n$(id) `id` \\\\ é')\n# no end of line"
	output, err := m.run(script4(t, odd))
	require.NoError(t, err, output)
	assert.Equal(t, "STARTUP_SCRIPT\n$(id) `id` \\ é", m.read("odd"))
}

func TestStartupScriptThatFailsKeepsTheInstanceFromJoining(t *testing.T) {
	m := newMachine(t)
	text := script4(t, `[[ -e $ROOT/fixed ]] || exit 7`)
	output, err := m.run(text)
	require.Error(t, err)
	assert.Contains(t, output, "the startup script ended with exit code 7")
	assert.Contains(t, output, "correct spec.startupScript")
	assert.Empty(t, m.read("calls"))

	require.NoError(t, os.WriteFile(m.dir+"/fixed", nil, 0o600))
	output, err = m.run(text)
	require.NoError(t, err, output)
	assert.Equal(t, "join\n", m.read("calls"))
}

func TestJoiningIsTriedAgainAndCleansUpBefore(t *testing.T) {
	m := newMachine(t)
	require.NoError(t, os.MkdirAll(m.dir+"/etc/kubernetes", 0o755))
	require.NoError(t, os.WriteFile(m.dir+"/etc/kubernetes/bootstrap-kubelet.conf", nil, 0o600))
	m.program("sleep", `rm -f "$ROOT/broken"`)
	require.NoError(t, os.WriteFile(m.dir+"/broken", nil, 0o600))
	output, err := m.run(script4(t, ""))
	require.NoError(t, err, output)
	assert.Equal(t, "reset\njoin\njoin\n", m.read("calls"))
	assert.Contains(t, output, "kubeadm join failed, again in 5 s")
}

func TestJoiningEndsInTime(t *testing.T) {
	m := newMachine(t)
	require.NoError(t, os.WriteFile(m.dir+"/broken", nil, 0o600))
	spec := specWith("")
	spec.JoinTimeout.Duration = 5 * time.Second
	text, err := startupScript(testJoin(), spec)
	require.NoError(t, err)
	output, err := m.run(text)
	require.Error(t, err)
	assert.Contains(t, output, "kubeadm join failed 1 times within 5 s")
}

func TestConfigurationFitsTheVersionOfKubeadm(t *testing.T) {
	for version, want := range map[string]string{
		"v1.30.9": `"kubeletExtraArgs":{"node-labels":`,
		"v1.31.0": `"kubeletExtraArgs":[{"name":"node-labels","value":"example.com/zone=us-central1-a,training.dcnlab.com/spot-instance-vm=t4,training.dcnlab.com/spot-instance-vm-namespace=team-a"},{"name":"provider-id"`,
	} {
		m := newMachine(t)
		output, err := m.run(script4(t, ""), "KUBEADM_VERSION="+version)
		require.NoError(t, err, output)
		config := m.read("config")
		assert.Contains(t, config, want)
		assert.Contains(t, config, `"token":"`+testToken+`"`)
		assert.Contains(t, config, `"taints":[{"key":"nvidia.com/gpu"`)
	}
}

func TestInstanceWithoutKubeadmSaysSo(t *testing.T) {
	m := newMachine(t)
	require.NoError(t, os.Remove(m.dir+"/bin/kubeadm"))
	output, err := m.run(script4(t, ""))
	require.Error(t, err)
	assert.Contains(t, output, "there is no kubeadm on the PATH")
}

func TestJoinScriptWaitsForThePreparation(t *testing.T) {
	m := newMachine(t)
	text, err := joinScript(testJoin(), specWith("true"))
	require.NoError(t, err)
	// The startup script ends while it is waited for.
	m.program("sleep", `mkdir -p "$ROOT/var/lib/spot-training-operator" && touch "$ROOT/var/lib/spot-training-operator/prepared"`)
	output, err := m.run(text)
	require.NoError(t, err, output)
	assert.Less(t, strings.Index(output, "waiting for the startup script"), strings.Index(output, "kubeadm join to"))

	failing := newMachine(t)
	output, err = failing.run(preparation(testJoin(), specWith("exit 4")))
	require.Error(t, err, output)
	output, err = failing.run(text)
	require.Error(t, err)
	assert.Contains(t, output, "the startup script ended with exit code 4")
}

func TestMetadata(t *testing.T) {
	spec := specWith("true")
	metadata, err := Metadata(testJoin(), spec, nil)
	require.NoError(t, err)
	assert.Contains(t, metadata["startup-script"], "kubeadm join")
	assert.Len(t, metadata, 1)

	private, err := newPrivateKey()
	require.NoError(t, err)
	key, err := parseKey(private)
	require.NoError(t, err)
	spec.KubeadmJoinConfig.Method = spotv1alpha1.JoinBySSH
	metadata, err = Metadata(testJoin(), spec, key)
	require.NoError(t, err)
	assert.NotContains(t, metadata["startup-script"], "kubeadm")
	assert.NotContains(t, metadata["startup-script"], "0123456789abcdef", "with SSH the token is no business of the metadata")
	assert.Equal(t, "spot:"+key.AuthorizedKey()+" spot", metadata["ssh-keys"])
	assert.Equal(t, "TRUE", metadata["enable-guest-attributes"])

	_, err = Metadata(testJoin(), spec, nil)
	require.ErrorContains(t, err, "needs a key")
	spec.StartupScript = ""
	metadata, err = Metadata(testJoin(), spec, key)
	require.NoError(t, err)
	assert.NotContains(t, metadata, "startup-script")

	incomplete := testJoin()
	incomplete.Cluster.Token = ""
	_, err = Metadata(incomplete, specWith(""), nil)
	require.ErrorContains(t, err, "no bootstrap token")
}

func TestScriptsAreSound(t *testing.T) {
	for name, text := range map[string]string{
		"startup": script4(t, "true"), "join only": script4(t, ""), "preparation": preparation(testJoin(), specWith("true")),
	} {
		cmd := exec.CommandContext(t.Context(), "bash", "-n")
		cmd.Stdin = strings.NewReader(text)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
		if shellcheck, err := exec.LookPath("shellcheck"); err == nil {
			cmd := exec.CommandContext(t.Context(), shellcheck, "-")
			cmd.Stdin = strings.NewReader(text)
			out, err := cmd.CombinedOutput()
			assert.NoError(t, err, "%s: %s", name, out)
		}
	}
}
