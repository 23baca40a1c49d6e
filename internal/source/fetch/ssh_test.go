package fetch

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/test/harness/process"
)

const sshd = "/usr/sbin/sshd"

// key makes a pair of SSH keys, and returns both.
func key(t *testing.T, path string) (private, public string) {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path).CombinedOutput()
	require.NoError(t, err, "%s", output)
	secret, err := os.ReadFile(path)
	require.NoError(t, err)
	open, err := os.ReadFile(path + ".pub")
	require.NoError(t, err)
	return string(secret), strings.TrimSpace(string(open))
}

func TestARepositoryIsFetchedBySSH(t *testing.T) {
	t.Parallel()
	_, err := os.Stat(sshd)
	require.NoError(t, err, "install the Debian package openssh-server (make test does)")
	if os.Geteuid() == 0 {
		// What sshd wants of a superuser; on a usual system it is there since the start.
		require.NoError(t, os.MkdirAll("/run/sshd", 0o755))
	}
	folder := t.TempDir()
	identity, public := key(t, filepath.Join(folder, "identity"))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "authorized"), []byte(public+"\n"), 0o600))
	_, hostKey := key(t, filepath.Join(folder, "host"))
	address := process.FreePort(t, process.AnyPort)
	host, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "sshd_config"), fmt.Appendf(nil,
		"ListenAddress %s\nPort %s\nHostKey %s/host\nAuthorizedKeysFile %s/authorized\n"+
			"PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n",
		host, port, folder, folder), 0o600))
	process.New(t, process.Options{
		Name: "sshd", Log: filepath.Join(folder, "log"), Stop: syscall.SIGTERM,
		Command: func() *exec.Cmd { return exec.Command(sshd, "-D", "-e", "-f", filepath.Join(folder, "sshd_config")) },
		Ready: func() error {
			connection, err := net.Dial("tcp", address)
			if err != nil {
				return err
			}
			return connection.Close()
		},
	})
	me, err := user.Current()
	require.NoError(t, err)
	r := newRepository(t)
	from := r.source(t, r.commit(t, program))
	from.Git.URL = "ssh://" + me.Username + "@" + address + r.Folder
	known := "[" + host + "]:" + port + " " + hostKey + "\n"
	secret := map[string]string{"identity": identity, "known_hosts": known}
	with := func(key, value string) map[string]string {
		changed := map[string]string{"identity": secret["identity"], "known_hosts": secret["known_hosts"]}
		if changed[key] = value; value == "" {
			delete(changed, key)
		}
		return changed
	}
	other, otherHost := key(t, filepath.Join(folder, "other"))

	run(t, from, secret).has(t, program)
	run(t, from, with("identity", "")).fails(t, reasons.SourceAccessDenied, "spec.source.git.secretRef: Secret fetch has no key identity, which SSH needs")
	run(t, from, with("known_hosts", "")).fails(t, reasons.SourceAccessDenied, "spec.source.git.secretRef: Secret fetch has no key known_hosts, which SSH needs")
	run(t, from, with("identity", other)).fails(t, reasons.SourceAccessDenied, "refuses access: correct the Secret fetch of spec.source.git.secretRef")
	run(t, from, with("identity", planted)).fails(t, reasons.SourceAccessDenied, "identity of Secret fetch is no private key without a passphrase")
	run(t, from, with("known_hosts", planted)).fails(t, reasons.SourceAccessDenied, "known_hosts of Secret fetch cannot be read")
	run(t, from, with("known_hosts", "["+host+"]:"+port+" "+otherHost)).fails(t, reasons.SourceAccessDenied,
		"the host key of 127.0.0.1 is not the one in known_hosts of Secret fetch")
	run(t, from, with("known_hosts", "example.com "+hostKey)).fails(t, reasons.SourceAccessDenied, "known_hosts of Secret fetch has no key of 127.0.0.1")

	from.Git.URL = strings.TrimSuffix(from.Git.URL, r.Folder) + "/none.git"
	run(t, from, secret).fails(t, reasons.SourceNotFound, "has no such repository: correct the url")
	from.Git.SecretRef = nil
	run(t, from, nil).fails(t, reasons.SourceAccessDenied, "needs credentials: name a Secret in spec.source.git.secretRef with the keys identity and known_hosts")
}
