package checkpointagent

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/manifest"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/store"
	"github.com/dcnlab/spot-training-operator/test/harness/stores"
)

const area = "ml/digits/uid-1"

// stored brings two checkpoints to an S3 server as an agent does, and returns the environment of the agent's container.
func stored(t *testing.T) (s *stores.S3, env map[string]string) {
	t.Helper()
	s = stores.NewS3(t, stores.AnyPort)
	s.MakeBucket("ckpt")
	credentials := t.TempDir()
	for key, value := range s.Secret() {
		require.NoError(t, os.WriteFile(filepath.Join(credentials, key), []byte(value), 0o600))
	}
	env = map[string]string{envStore: s.URL("ckpt", area), envCredentials: credentials}
	to, err := store.New(env[envStore], credentials)
	require.NoError(t, err)
	for _, name := range []string{"checkpoint-epoch-1", "checkpoint-epoch-2"} {
		folder := t.TempDir()
		require.NoError(t, os.MkdirAll(filepath.Join(folder, "shards"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "state.pt"), []byte("weights of "+name), 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "shards", `odd "name".bin`), []byte("shard"), 0o644))
		dir, err := os.OpenRoot(folder)
		require.NoError(t, err)
		m, err := manifest.Make(t.Context(), dir, name)
		require.NoError(t, err)
		looked, err := to.Look(t.Context())
		require.NoError(t, err)
		_, err = to.Upload(t.Context(), looked, 0, dir, name, m)
		require.NoError(t, err)
		require.NoError(t, dir.Close())
	}
	return s, env
}

// sign runs the subcommand in an environment.
func sign(t *testing.T, env map[string]string, arguments ...string) (out, problems string, err error) {
	t.Helper()
	for _, name := range []string{envStore, envCredentials} {
		t.Setenv(name, env[name])
	}
	command := New()
	var stdout, stderr bytes.Buffer
	command.SetArgs(append([]string{"sign"}, arguments...))
	command.SetOut(&stdout)
	command.SetErr(&stderr)
	command.SilenceUsage, command.SilenceErrors = true, true
	err = command.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

func TestSignPrintsURLsOfTheNewestCheckpoint(t *testing.T) {
	_, env := stored(t)
	out, problems, err := sign(t, env, "--expires", "30m")
	require.NoError(t, err)
	assert.Empty(t, problems)
	var signed signedCheckpoint
	require.NoError(t, json.Unmarshal([]byte(out), &signed))
	assert.Equal(t, "s3://ckpt/"+area+"/checkpoints/checkpoint-epoch-2", signed.Checkpoint)
	assert.WithinDuration(t, time.Now().Add(30*time.Minute), signed.Expires, time.Minute)
	require.Len(t, signed.Files, 3)
	assert.Equal(t, `shards/odd "name".bin`, signed.Files[0].Path)
	answer, err := http.Get(signed.Files[1].URL)
	require.NoError(t, err)
	content, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	assert.Equal(t, "weights of checkpoint-epoch-2", string(content))
}

func TestCurlDownloadsWhatSignPrints(t *testing.T) {
	curl, err := exec.LookPath("curl")
	require.NoError(t, err, "curl is not installed")
	_, env := stored(t)
	out, _, err := sign(t, env, "--checkpoint", "checkpoint-epoch-1", "--output", "curl")
	require.NoError(t, err)
	command := exec.CommandContext(t.Context(), curl, "--silent", "--show-error", "--config", "-")
	command.Dir, command.Stdin = t.TempDir(), strings.NewReader(out)
	text, err := command.CombinedOutput()
	require.NoError(t, err, "%s", text)
	dir, err := os.OpenRoot(filepath.Join(command.Dir, "checkpoint-epoch-1"))
	require.NoError(t, err)
	m, err := manifest.Read(dir)
	require.NoError(t, err)
	require.NoError(t, manifest.Verify(t.Context(), dir, m), "it is a checkpoint, as it was")
	require.NoError(t, dir.Close())
}

func TestSignPassesOverWhatIsNotWhole(t *testing.T) {
	s, env := stored(t)
	for _, key := range s.Keys("ckpt", area+"/blobs") {
		if string(s.Get("ckpt", key)) == "weights of checkpoint-epoch-2" {
			s.Remove("ckpt", key)
		}
	}
	out, problems, err := sign(t, env)
	require.NoError(t, err)
	assert.Contains(t, out, "/checkpoint-epoch-1\"")
	assert.Contains(t, problems, "checkpoint-epoch-2 is passed over: state.pt is missing in the storage")
}

func TestSignSaysWhatIsWrong(t *testing.T) {
	s, env := stored(t)
	for _, test := range []struct {
		name      string
		env       map[string]string
		arguments []string
		code      int
		want      string
	}{
		{"no store", nil, nil, exitSettings, "--uri: is missing, and the checkpoints of this pod lie in no object store: name one, or copy from the volume"},
		{"no URL", env, []string{"--uri", "ftp://x"}, exitSettings, "--uri: \"ftp://x\" begins with none of s3://"},
		{"too short", env, []string{"--expires", "10s"}, exitSettings, "--expires: 10s is less than 1m or more than 168h: choose a time between"},
		{"too long", env, []string{"--expires", "169h"}, exitSettings, "--expires: 169h0m0s is less than 1m or more than 168h"},
		{"another form", env, []string{"--output", "yaml"}, exitSettings, "--output: \"yaml\" is neither json nor curl"},
		{"no name", env, []string{"--checkpoint", "../x"}, exitSettings, "--checkpoint: \"../x\" is no name such as"},
		{"not there", env, []string{"--checkpoint", "checkpoint-epoch-9"}, exitNotFound, "there is no checkpoint-epoch-9 at s3://ckpt/" + area},
		{"nothing there", env, []string{"--uri", s.URL("ckpt", "elsewhere"), "--credentials", env[envCredentials]}, exitNotFound, "there is no checkpoint at s3://ckpt/elsewhere"},
		{"no bucket", env, []string{"--uri", s.URL("gone", area), "--credentials", env[envCredentials]}, 0, "bucket gone"},
		{"no credentials", env, []string{"--uri", s.URL("ckpt", area), "--credentials", t.TempDir()}, 0, "AWS_ACCESS_KEY_ID"},
	} {
		t.Run(test.name, func(t *testing.T) {
			out, _, err := sign(t, test.env, test.arguments...)
			require.ErrorContains(t, err, test.want)
			assert.NotContains(t, err.Error(), s.SecretAccessKey)
			assert.Empty(t, out)
			var coded exitError
			if test.code != 0 {
				require.ErrorAs(t, err, &coded)
				assert.Equal(t, test.code, coded.code)
			}
		})
	}
}
