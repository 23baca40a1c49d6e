package manager

import (
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWhereTheJobServiceIs(t *testing.T) {
	const service = "spot-training-operator-job-service.operator.svc:8000"
	for name, test := range map[string]struct {
		args     []string
		variable string
		want     string // address or error
	}{
		"no certificate":         {nil, "", "http://" + service},
		"the manager's":          {[]string{"--job-service-cert-mode=self"}, "", "https://" + service},
		"another's":              {[]string{"--job-service-cert-mode=secret"}, "", "https://" + service},
		"plain HTTP by the flag": {[]string{"--job-service-cert-mode=self", "--job-service-plain-http"}, "", "http://" + service},
		"by the variable":        {[]string{"--job-service-cert-mode=self"}, "true", "http://" + service},
		"elsewhere":              {[]string{"--job-service-cert-mode=self", "--job-service-url=https://jobs"}, "", "https://jobs"},
		"no such mode":           {[]string{"--job-service-cert-mode=files"}, "", `--job-service-cert-mode: "files" is none of self, secret and off`},
		"no Secret":              {[]string{"--job-service-cert-mode=secret", "--job-service-cert-secret="}, "", "--job-service-cert-secret: is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(plainHTTPVariable, test.variable)
			var o jobServiceOptions
			flags := pflag.NewFlagSet("manager", pflag.ContinueOnError)
			o.addFlags(flags)
			require.NoError(t, flags.Parse(test.args))
			if err := o.validate("operator"); err != nil {
				require.ErrorContains(t, err, test.want)
				return
			}
			assert.Equal(t, test.want, o.address("operator"))
		})
	}
	require.ErrorContains(t, (&jobServiceOptions{certMode: certificateSelf}).validate(""), "--namespace: is not set")
}
