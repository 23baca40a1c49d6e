package containercheckpoint

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

type neverAsked struct{ t *testing.T }

func (n neverAsked) RoundTrip(r *http.Request) (*http.Response, error) {
	n.t.Errorf("%s was asked", r.URL)
	return nil, http.ErrServerClosed
}

func TestPlainHTTPIsRefused(t *testing.T) {
	for host, allowed := range map[string]bool{
		"127.0.0.1:5000": true, "localhost:5000": true, "[::1]:5000": true, "10.0.0.7:5000": true, "plain.example.com": true, "plain.example.com:80": true,
		"10.0.0.7": false, "10.0.0.8:5000": false, "registry.example.com": false, "localhost.example.com": false,
	} {
		insecure := Insecure{"10.0.0.7:5000", "plain.example.com"}
		assert.Equal(t, allowed, insecure.allows(host), host)
		if allowed {
			continue
		}
		request := httptest.NewRequest(http.MethodPost, "http://"+host+"/v2/", nil)
		_, err := insecure.guard(neverAsked{t}).RoundTrip(request)
		require.ErrorIs(t, err, errPlain, host)
		assert.False(t, mayPass(err), "trying again is of no use")
	}
}

func TestCredentialsOfTheLongestNameAreTaken(t *testing.T) {
	keys, err := readKeychain(&corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths": {
		"https://registry.example.com/v2/": {"username": "all", "password": "p"},
		"registry.example.com/team": {"auth": "dGVhbTpw"},
		"https://index.docker.io/v1/": {"username": "hub", "password": "p"}
	}}`)}})
	require.NoError(t, err)
	for image, user := range map[string]string{
		"registry.example.com/other/xx:1": "all", "registry.example.com/team/xx:1": "team", "registry.example.com/teams:1": "all",
		"library/xx:1": "hub", "other.example.com/xx:1": "",
	} {
		tag, err := name.NewTag(image)
		require.NoError(t, err)
		found, err := keys.Resolve(tag.Context())
		require.NoError(t, err)
		config, err := found.Authorization()
		require.NoError(t, err)
		assert.Equal(t, user, config.Username, image)
	}
}

func TestStraysOfTheSameContainerOnlyAreRemoved(t *testing.T) {
	folder := t.TempDir()
	for _, file := range []string{
		"checkpoint-bert-0_team-train-2026-03-01T12:00:00Z.tar", "checkpoint-bert-0_team-train-2026-03-01T12:00:00+01:00.tar",
		"checkpoint-bert-0_team-train-side-2026-03-01T12:00:00Z.tar", "checkpoint-bert-01_team-train-2026-03-01T12:00:00Z.tar", "other.tar",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, file), nil, 0o600))
	}
	require.NoError(t, removeStrays(folder, runningPod(), "train"))
	left, err := filepath.Glob(filepath.Join(folder, "*"))
	require.NoError(t, err)
	var names []string
	for _, file := range left {
		names = append(names, filepath.Base(file))
	}
	assert.ElementsMatch(t, []string{
		"checkpoint-bert-0_team-train-side-2026-03-01T12:00:00Z.tar", "checkpoint-bert-01_team-train-2026-03-01T12:00:00Z.tar", "other.tar",
	}, names)
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
