package containercheckpoint

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPlainHTTPIsRefused(t *testing.T) {
	for host, allowed := range map[string]bool{
		"127.0.0.1:5000": false, "localhost:5000": false, "[::1]:5000": false, "127.0.0.1:5001": true, "10.0.0.7:5000": true, "plain.example.com": true, "plain.example.com:80": true,
		"10.0.0.7": false, "10.0.0.8:5000": false, "registry.example.com": false, "localhost.example.com": false,
	} {
		insecure := Insecure{"10.0.0.7:5000", "plain.example.com", "127.0.0.1:5001"}
		assert.Equal(t, allowed, insecure.allows(host), host)
		if allowed {
			continue
		}
		request := httptest.NewRequest(http.MethodPost, "http://"+host+"/v2/", nil)
		_, err := insecure.transport(host).RoundTrip(request)
		require.ErrorIs(t, err, errPlain, host)
		assert.False(t, mayPass(err), "trying again is of no use")
	}
}

// The agent is in the network of its node: who writes a CheckpointBackup must not reach what only the node reaches.
func TestACheckpointIsSentToNoAddressOfTheNodeItself(t *testing.T) {
	opened := make(chan net.Conn, 10)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			opened <- connection
		}
	}()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	for _, host := range []string{"localhost:" + port, "127.0.0.1:" + port, "[::ffff:127.0.0.1]:" + port, "169.254.169.254", "[fd00:ec2::254]", "[fe80::1]", "0.0.0.0:" + port} {
		request := httptest.NewRequest(http.MethodPost, "https://"+host+"/v2/team/x/blobs/uploads/", nil)
		_, err := Insecure{}.transport(host).RoundTrip(request)
		require.ErrorIs(t, err, errLocal, host)
		assert.False(t, mayPass(err), "trying again is of no use")
	}
	assert.Empty(t, opened)
}

func TestARegistryDoesNotSendACheckpointElsewhere(t *testing.T) {
	reached := false
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer elsewhere.Close()
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodPost:
			w.Header().Set("Location", elsewhere.URL+"/upload")
			w.WriteHeader(http.StatusAccepted)
		case http.MethodHead:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer registry.Close()
	host := strings.TrimPrefix(registry.URL, "http://")
	insecure := Insecure{host, strings.TrimPrefix(elsewhere.URL, "http://")}
	image, err := name.NewTag(host+"/team/x:1", insecure.options(host+"/team/x:1")...)
	require.NoError(t, err)
	err = remote.Write(image, empty.Image, remote.WithTransport(insecure.transport(host)))
	require.ErrorIs(t, err, errElsewhere)
	assert.False(t, mayPass(err), "trying again is of no use")
	assert.False(t, reached)
}

// archiveOf writes an archive as containerd does, from which only its owner can be read; the UID of the pod may be left out.
func archiveOf(t *testing.T, path string, of subject, uid ...string) {
	t.Helper()
	file, err := os.Create(path)
	require.NoError(t, err)
	annotations := map[string]string{
		"io.kubernetes.cri.sandbox-namespace": of.namespace, "io.kubernetes.cri.sandbox-name": of.pod, "io.kubernetes.cri.container-name": of.container,
	}
	for _, is := range uid {
		annotations["io.kubernetes.cri.sandbox-uid"] = is
	}
	spec, err := json.Marshal(map[string]any{"annotations": annotations})
	require.NoError(t, err)
	archive := tar.NewWriter(file)
	for _, name := range mustHave {
		require.NoError(t, archive.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(spec))}))
		_, err = archive.Write(spec)
		require.NoError(t, err)
	}
	require.NoError(t, errors.Join(archive.Close(), file.Close()))
}

// The name of an archive may be that of containers of two namespaces.
func TestStraysOfTheSameContainerOnlyAreRemoved(t *testing.T) {
	folder := t.TempDir()
	mine := subject{"team", "bert-0", "train"}
	for file, of := range map[string]subject{
		"checkpoint-bert-0_team-train-2026-03-01T12:00:00Z.tar":      mine,
		"checkpoint-bert-0_team-train-2026-03-01T12:00:00+01:00.tar": mine,
		"checkpoint-bert-0_team-train-side-2026-03-01T12:00:00Z.tar": {"team", "bert-0", "train-side"},
		"checkpoint-bert-0_team-train-2026-03-02T12:00:00Z.tar":      {"team-train", "bert-0", "2026"},
	} {
		archiveOf(t, filepath.Join(folder, file), of)
	}
	half := filepath.Join(folder, "checkpoint-bert-0_team-train-2026-03-03T12:00:00Z.tar")
	require.NoError(t, os.WriteFile(half, []byte("begun"), 0o600))
	left := func() (names []string) {
		files, err := os.ReadDir(folder)
		require.NoError(t, err)
		for _, file := range files {
			names = append(names, file.Name())
		}
		return names
	}
	require.NoError(t, removeStrays(folder, runningPod(), "train", time.Now()))
	others := []string{"checkpoint-bert-0_team-train-2026-03-02T12:00:00Z.tar", "checkpoint-bert-0_team-train-side-2026-03-01T12:00:00Z.tar"}
	assert.ElementsMatch(t, append(others, filepath.Base(half)), left(), "one that is being written stays")
	require.NoError(t, removeStrays(folder, runningPod(), "train", time.Now().Add(2*time.Hour)))
	assert.ElementsMatch(t, others, left(), "but not forever")
}

func TestADiskThatIsTooFullIsTold(t *testing.T) {
	require.NoError(t, needSpace(t.TempDir(), 1))
	assert.ErrorContains(t, needSpace(t.TempDir(), 1<<62), "less than the")
}

func TestAKubeletElsewhereMustHaveAGoodCertificate(t *testing.T) {
	reached := false
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached = true
		_, _ = w.Write([]byte(`{"items":["/x/y.tar"]}`))
	}))
	defer server.Close()
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "token"), []byte("t"), 0o600))
	k := Kubelet{
		Address: server.Listener.Addr().String(), TokenFile: filepath.Join(folder, "token"), AuthoritiesFile: filepath.Join(folder, "ca.crt"),
		Timeout: time.Second, Local: func(string) (bool, error) { return false, nil },
	}
	_, err := k.Checkpoint(context.Background(), "n", "p", "c")
	require.ErrorContains(t, err, "certificate authorities")
	assert.False(t, reached, "the token is not given away")
	k.Local = nil
	file, err := k.Checkpoint(context.Background(), "n", "p", "c")
	require.NoError(t, err)
	assert.Equal(t, "y.tar", file)
}
