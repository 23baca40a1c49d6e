package jobservice

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// parse flags as the command does, in an environment that says nothing else than what is given.
func parse(t *testing.T, env map[string]string, args ...string) options {
	t.Helper()
	for _, name := range []string{"KUBECONFIG", "KUBERNETES_SERVICE_HOST", "DATABASE_URL", "DATABASE_REPLICA_URL", "REDIS_URL", hmacVariable, keepVariable} {
		t.Setenv(name, env[name])
	}
	var o options
	flags := pflag.NewFlagSet("job-service", pflag.ContinueOnError)
	o.addFlags(flags)
	require.NoError(t, flags.Parse(args))
	o.settle(flags)
	return o
}

// A trial grants all rights: it must not begin by itself where there is something to lose.
func TestWhatIsATrial(t *testing.T) {
	for name, test := range map[string]struct {
		env   map[string]string
		args  []string
		trial bool
	}{
		"nothing said":                  {trial: true},
		"a folder":                      {args: []string{"--data-dir=x"}, trial: true},
		"without Kubernetes":            {args: []string{"--kubernetes=false"}, env: map[string]string{"KUBECONFIG": "x"}, trial: true},
		"asked for":                     {args: []string{"--trial", "--kubeconfig=x"}, trial: true},
		"a cluster, by a flag":          {args: []string{"--kubernetes"}},
		"a cluster, by a file":          {args: []string{"--kubeconfig=x"}},
		"a cluster, by the environment": {env: map[string]string{"KUBECONFIG": "x"}},
		"a cluster that one is in":      {env: map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"}},
		"a secret":                      {env: map[string]string{hmacVariable: "x"}},
		"the keys of an issuer":         {args: []string{"--jwks=https://keys"}},
		"servers":                       {env: map[string]string{"DATABASE_URL": "postgres://x", "REDIS_URL": "redis://x"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := parse(t, test.env, test.args...)
			assert.Equal(t, test.trial, o.trial)
			if test.trial {
				assert.Equal(t, "127.0.0.1:8000", o.address, "only this machine reaches it")
			} else {
				assert.Equal(t, ":8000", o.address)
			}
		})
	}
}

// Who signs tokens for the service does not name users of Kubernetes with them, unless an administrator says so.
func TestTokensAreBoundedByDefault(t *testing.T) {
	o := parse(t, nil, "--jwks=https://keys")
	assert.Equal(t, "jwt:", o.tokens.Prefix)
	assert.Equal(t, 24*time.Hour, o.tokens.MaxLifetime)
	require.ErrorContains(t, o.validate(), "--jwks: needs --token-audience")
	o = parse(t, nil, "--jwks=https://keys", "--token-audience=jobs", "--token-prefix=", "--token-max-lifetime=0")
	assert.Empty(t, o.tokens.Prefix)
	require.NoError(t, o.validate())
	require.ErrorContains(t, new(parse(t, nil, "--token-max-lifetime=-1s")).validate(), "--token-max-lifetime: -1s is less than 0")
}

func TestAReplicaIsOneOfADatabase(t *testing.T) {
	servers := map[string]string{"DATABASE_URL": "postgres://x", "REDIS_URL": "redis+sentinel://x?master_name=jobs", "DATABASE_REPLICA_URL": "postgres://y"}
	o := parse(t, servers)
	require.NoError(t, o.validate())
	assert.Equal(t, 10*time.Second, o.store.ReplicaMaxLag)
	require.ErrorContains(t, new(parse(t, servers, "--database-replica-max-lag=1ms")).validate(), "--database-replica-max-lag: 1ms is less than 1s")
	o = parse(t, map[string]string{"DATABASE_REPLICA_URL": "postgres://y"})
	assert.False(t, o.trial)
	require.ErrorContains(t, o.validate(), "--database-replica-url: is set without --database-url")
}

// A pod's own volume ends with it: jobs are accepted there only when one says that they are kept, or may be lost.
func TestAPodAcceptsNoJobsThatItCanLose(t *testing.T) {
	const pod = "KUBERNETES_SERVICE_HOST"
	for name, test := range map[string]struct {
		env     map[string]string
		args    []string
		refused bool
	}{
		"in a pod":                             {env: map[string]string{pod: "10.0.0.1"}, refused: true},
		"in a pod, without Kubernetes":         {env: map[string]string{pod: "10.0.0.1", hmacVariable: "x"}, args: []string{"--kubernetes=false"}, refused: true},
		"in a pod, with servers":               {env: map[string]string{pod: "10.0.0.1", "DATABASE_URL": "postgres://x", "REDIS_URL": "redis://x"}},
		"in a pod with a claim, by a flag":     {env: map[string]string{pod: "10.0.0.1"}, args: []string{"--keep-jobs-in-data-dir"}},
		"in a pod with a claim, by a variable": {env: map[string]string{pod: "10.0.0.1", keepVariable: "true"}},
		"in a pod, the variable says no":       {env: map[string]string{pod: "10.0.0.1", keepVariable: "false"}, refused: true},
		"in a pod, on trial":                   {env: map[string]string{pod: "10.0.0.1"}, args: []string{"--trial"}},
		"on a machine":                         {env: map[string]string{hmacVariable: "x"}},
		"on a machine with a cluster":          {args: []string{"--kubeconfig=x"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := parse(t, test.env, test.args...)
			refusal := o.store.refusal()
			assert.Equal(t, test.refused, refusal != "", refusal)
			if test.refused {
				assert.Contains(t, refusal, "set DATABASE_URL and REDIS_URL, or mount a volume that outlives the pod at job-service-data and set KEEP_JOBS_IN_DATA_DIR=true")
			}
		})
	}
}

func TestTrustedProxiesAreNetworks(t *testing.T) {
	assert.Empty(t, parse(t, nil).trustedProxies)
	proxies := parse(t, nil, "--trusted-proxies=10.0.0.0/8,fd00::/8").trustedProxies
	require.Len(t, proxies, 2)
	assert.True(t, proxies[0].Contains(net.IPv4(10, 1, 2, 3)))
}

func TestSecretsComeFromFilesAndTheEnvironment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "url")
	require.NoError(t, os.WriteFile(file, []byte("postgres://from-the-file\n"), 0o600))
	read := func(env map[string]string, args ...string) (string, error) {
		o := parse(t, env, args...)
		return o.store.database.read()
	}
	value, err := read(nil, "--database-url-file="+file)
	require.NoError(t, err)
	assert.Equal(t, "postgres://from-the-file", value)
	value, err = read(map[string]string{"DATABASE_URL": "postgres://from-the-environment"})
	require.NoError(t, err)
	assert.Equal(t, "postgres://from-the-environment", value)
	_, err = read(nil, "--database-url-file="+file, "--database-url=postgres://x")
	assert.ErrorContains(t, err, "--database-url, --database-url-file: both are set")
	require.NoError(t, os.WriteFile(file, []byte("\n"), 0o600))
	_, err = read(nil, "--database-url-file="+file)
	assert.ErrorContains(t, err, "is empty: write the value into it")
}

func TestTheSecretOfATrialIsKept(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "data")
	first, err := keepSecret(folder)
	require.NoError(t, err)
	again, err := keepSecret(folder)
	require.NoError(t, err)
	assert.Equal(t, first, again)
	assert.GreaterOrEqual(t, len(first), 32)
	info, err := os.Stat(filepath.Join(folder, trialSecret))
	require.NoError(t, err)
	assert.EqualValues(t, 0o600, info.Mode().Perm())
}
