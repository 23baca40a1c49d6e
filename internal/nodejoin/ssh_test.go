package nodejoin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sshServer is a real sshd on loopback, with keys of its own. A client that logs in gets the script that it sends run in the
// folders of a machine.
type sshServer struct {
	machine
	address string
	user    string
	key     *KeyPair
	// hostKey is the public one, as the instance publishes it.
	hostKey string
}

// forced runs whatever is asked for: the script on the standard input, its paths changed to those of the machine.
const forced = `#!/bin/bash
echo "$SSH_ORIGINAL_COMMAND" >>"$ROOT/commands"
sed -e "s#/var/lib/#$ROOT/var/lib/#g; s#/etc/kubernetes#$ROOT/etc/kubernetes#g; s#PATH=/usr/local/sbin:#PATH=$ROOT/bin:#" >"$ROOT/script"
if [[ -e $ROOT/says ]]; then cat "$ROOT/says"; fi
if [[ -e $ROOT/vanishes ]]; then kill -KILL $PPID; exit; fi
exec /bin/bash -s <"$ROOT/script"
`

func startSSHServer(t *testing.T, keyType string) *sshServer {
	t.Helper()
	sshd := "/usr/sbin/sshd"
	_, err := os.Stat(sshd)
	require.NoError(t, err, "install the Debian package openssh-server (make test does)")
	s := &sshServer{machine: newMachine(t)}
	current, err := user.Current()
	require.NoError(t, err)
	s.user = current.Username
	if os.Geteuid() == 0 {
		// What sshd wants of a superuser; on a usual system it is there since the start.
		require.NoError(t, os.MkdirAll("/run/sshd", 0o755))
	}
	private, err := newPrivateKey()
	require.NoError(t, err)
	s.key, err = parseKey(private)
	require.NoError(t, err)
	host := filepath.Join(s.dir, "host")
	output, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", keyType, "-N", "", "-f", host).CombinedOutput()
	require.NoError(t, err, "%s", output)
	s.hostKey = strings.TrimSpace(s.read("host.pub"))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "authorized"), []byte(s.key.AuthorizedKey()+"\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "forced"), []byte(strings.ReplaceAll(forced, "$ROOT", s.dir)), 0o700))
	port := freePort(t)
	s.address = fmt.Sprintf("127.0.0.1:%d", port)
	config := fmt.Sprintf("ListenAddress 127.0.0.1\nPort %d\nHostKey %s\nAuthorizedKeysFile %s/authorized\nForceCommand %s/forced\nSetEnv ROOT=%s\n"+
		"PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n",
		port, host, s.dir, s.dir, s.dir)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "sshd_config"), []byte(config), 0o600))
	s.serve(sshd)
	return s
}

// serve starts sshd, and ends it after the test.
func (s *sshServer) serve(sshd string) {
	log, err := os.Create(filepath.Join(s.dir, "log"))
	require.NoError(s.t, err)
	cmd := exec.Command(sshd, "-D", "-e", "-f", filepath.Join(s.dir, "sshd_config"))
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(s.t, cmd.Start())
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		if s.t.Failed() {
			s.t.Log(s.read("log"))
		}
	})
	require.Eventually(s.t, func() bool {
		connection, err := net.Dial("tcp", s.address)
		if err != nil {
			return false
		}
		return connection.Close() == nil
	}, time.Minute, 20*time.Millisecond, "sshd does not listen")
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return listener.Addr().(*net.TCPAddr).Port
}

func (s *sshServer) target() SSH {
	return SSH{Address: s.address, User: s.user, Key: s.key, HostKeys: []string{s.hostKey}}
}

// fails joins over SSH and returns the error.
func fails(ctx context.Context, t *testing.T, target SSH) *SSHError {
	t.Helper()
	failure := (*SSHError)(nil)
	require.ErrorAs(t, OverSSH(ctx, target, testJoin(), specWith("")), &failure)
	assert.NotContains(t, failure.Error(), "0123456789abcdef", "the token is in the error")
	return failure
}

func TestOverSSHJoinsAndIsHarmlessTwice(t *testing.T) {
	for _, keyType := range []string{"ed25519", "rsa", "ecdsa"} {
		t.Run(keyType, func(t *testing.T) {
			s := startSSHServer(t, keyType)
			require.NoError(t, OverSSH(t.Context(), s.target(), testJoin(), specWith("")))
			require.NoError(t, OverSSH(t.Context(), s.target(), testJoin(), specWith("")))
			assert.Equal(t, "join\n", s.read("calls"))
			assert.NotContains(t, s.read("commands"), "0123456789abcdef", "the token is in the list of processes")
		})
	}
}

func TestOverSSHRefusesAnotherHostKey(t *testing.T) {
	s := startSSHServer(t, "ed25519")
	target := s.target()
	target.HostKeys = []string{s.key.AuthorizedKey()}
	failure := fails(t.Context(), t, target)
	assert.Equal(t, StageHostKey, failure.Stage)
	assert.False(t, failure.Temporary())
	hostKeys, err := parseHostKeys([]string{s.hostKey})
	require.NoError(t, err)
	assert.ErrorContains(t, failure, "the host key "+fingerprints(hostKeys)+" is not one of those that the instance has published")
	assert.ErrorContains(t, failure, fingerprint(s.key.signer.PublicKey()))
	assert.Empty(t, s.read("commands"), "something was sent to a stranger")
}

func TestOverSSHRefusesAHostKeyOfAnotherKind(t *testing.T) {
	s := startSSHServer(t, "ecdsa")
	target := s.target()
	target.HostKeys = []string{s.key.AuthorizedKey()}
	failure := fails(t.Context(), t, target)
	assert.Equal(t, StageHostKey, failure.Stage)
	assert.ErrorContains(t, failure, "no host key of the kinds that it has published (ssh-ed25519")
}

func TestOverSSHNeedsPublishedHostKeys(t *testing.T) {
	failure := fails(t.Context(), t, SSH{Address: "127.0.0.1:1"})
	assert.Equal(t, StageHostKey, failure.Stage)
	assert.ErrorContains(t, failure, "has published no host keys yet")
	failure = fails(t.Context(), t, SSH{Address: "127.0.0.1:1", HostKeys: []string{"rubbish"}})
	assert.ErrorContains(t, failure, "cannot be read")
}

func TestOverSSHIsNotLetIn(t *testing.T) {
	s := startSSHServer(t, "ed25519")
	target := s.target()
	private, err := newPrivateKey()
	require.NoError(t, err)
	target.Key, err = parseKey(private)
	require.NoError(t, err)
	failure := fails(t.Context(), t, target)
	assert.Equal(t, StageLogin, failure.Stage)
	assert.True(t, failure.Temporary(), "the guest agent may not have made the user yet")
	assert.ErrorContains(t, failure, "user "+s.user)
}

func TestOverSSHNothingAnswers(t *testing.T) {
	s := startSSHServer(t, "ed25519")
	target := s.target()
	target.Address = fmt.Sprintf("127.0.0.1:%d", freePort(t))
	failure := fails(t.Context(), t, target)
	assert.Equal(t, StageConnect, failure.Stage)
	assert.True(t, failure.Temporary())
	assert.ErrorContains(t, failure, "connection refused")
	assert.ErrorContains(t, failure, "firewall rules")

	// One who takes the connection and says nothing.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	target.Address = listener.Addr().String()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	assert.Equal(t, StageConnect, fails(ctx, t, target).Stage)
}

func TestOverSSHShowsTheEndOfTheOutputWithoutTheToken(t *testing.T) {
	s := startSSHServer(t, "ed25519")
	require.NoError(t, os.Remove(filepath.Join(s.dir, "bin", "kubeadm")))
	said := strings.Repeat("an early line\n", 100) + "a program says " + testToken + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "says"), []byte(said), 0o600))
	failure := fails(t.Context(), t, s.target())
	assert.Equal(t, StageCommand, failure.Stage)
	assert.False(t, failure.Temporary())
	assert.ErrorContains(t, failure, "joining ended with exit code 1")
	assert.ErrorContains(t, failure, "there is no kubeadm on the PATH")
	assert.ErrorContains(t, failure, "a program says abcdef.[redacted]")
	assert.Len(t, strings.Split(failure.Output, "\n"), tailLines)
}

func TestOverSSHTakesNoLongerThanItMay(t *testing.T) {
	s := startSSHServer(t, "ed25519")
	// What the script writes before is on its way to the client when kubeadm starts.
	s.program("kubeadm", `if [[ $1 = join ]]; then sleep 1; echo now >"$ROOT/hangs"; exec tail -f /dev/null --pid=$PPID; fi; echo v1.36.3`)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for s.read("hangs") == "" && t.Context().Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		cancel(errors.New("out of time"))
	}()
	failure := fails(ctx, t, s.target())
	assert.Equal(t, StageCommand, failure.Stage)
	assert.ErrorContains(t, failure, "joining took too long: out of time")
	assert.ErrorContains(t, failure, "kubeadm join to 10.0.0.2:6443")
}

func TestOverSSHTellsABrokenConnectionFromAFailure(t *testing.T) {
	s := startSSHServer(t, "ed25519")
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "vanishes"), nil, 0o600))
	failure := fails(t.Context(), t, s.target())
	assert.Equal(t, StageConnect, failure.Stage)
	assert.True(t, failure.Temporary())
	assert.ErrorContains(t, failure, "the connection broke while the instance was joining")
}

// Temporary says whether the same may go well a little later, as with an instance that is still starting: its SSH server is
// up before the guest agent has made the user.
func (e *SSHError) Temporary() bool { return e.Stage == StageConnect || e.Stage == StageLogin }
