// Package jobservice is the subcommand that takes jobs over HTTP, keeps them, and has them run.
package jobservice

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/rest"
)

// options are the flags of the subcommand.
type options struct {
	address, metricsAddress string
	metricsSecure           bool
	certFile, keyFile       string
	plainHTTP               bool
	store                   storeOptions
	hmac                    hmacFlags
	tokens                  auth.Options
	trial                   bool
	cluster                 clusterOptions
	limits                  rest.Limits
	maxOpenJobs             int
	maxOpenJobsPerUser      int
	trustedProxies          []net.IPNet
	shutdownDelay           time.Duration
	shutdownTimeout         time.Duration
	logLevel                string
}

// plainHTTPVariable is the environment's --plain-http, for installations whose arguments cannot be changed. The manager reads it, too.
const plainHTTPVariable = "JOB_SERVICE_PLAIN_HTTP"

// New returns the subcommand.
func New() *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:   "job-service",
		Short: "Take jobs over HTTP, keep them, and have them run by pooled workers or as AIJobs",
		Long: "Take jobs over HTTP, keep them, and have them run by pooled workers or as AIJobs.\n\n" +
			"Without any flag it is a trial on this machine: jobs are kept in a folder, and a token to begin with is printed.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			o.settle(command.Flags())
			return run(command.Context(), o, command.OutOrStdout())
		},
	}
	o.addFlags(command.Flags())
	command.AddCommand(newToken())
	return command
}

func (o *options) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.address, "bind-address", ":8000", "address of the REST interface (in a trial 127.0.0.1:8000)")
	flags.StringVar(&o.metricsAddress, "metrics-bind-address", ":8080",
		"address of /metrics for Prometheus and /api/v1/health/ for probes; 0 turns it off (in a trial off)")
	flags.BoolVar(&o.metricsSecure, "metrics-secure", false,
		"serve --metrics-bind-address by HTTPS, with a certificate that it makes itself, and /metrics only to those whom Kubernetes allows to get it (default: plain HTTP, for all)")
	flags.StringVar(&o.certFile, "tls-cert-file", "", "certificate of the REST interface, read again when it changes (default: plain HTTP)")
	flags.StringVar(&o.keyFile, "tls-key-file", "", "key of --tls-cert-file")
	plain, _ := strconv.ParseBool(os.Getenv(plainHTTPVariable))
	flags.BoolVar(&o.plainHTTP, "plain-http", plain,
		"serve the REST interface by plain HTTP, whatever --tls-cert-file says, where a proxy before it ends TLS (environment: "+plainHTTPVariable+")")
	o.store.addFlags(flags)
	o.hmac.add(flags)
	flags.StringVar(&o.tokens.JWKS, "jwks", "", "https URL or file of the public keys of those who sign tokens; needs --token-audience")
	flags.StringVar(&o.tokens.Issuer, "token-issuer", "", "claim iss that tokens must have (default: any)")
	flags.StringVar(&o.tokens.Audience, "token-audience", "", "claim aud that tokens must have, required with --jwks (default: any)")
	flags.StringVar(&o.tokens.Prefix, "token-prefix", auth.DefaultPrefix,
		"what is put before the user (claim sub) and the groups of a JWT, for Kubernetes' RBAC; empty: signers of tokens can name users and groups of Kubernetes")
	flags.DurationVar(&o.tokens.MaxLifetime, "token-max-lifetime", auth.DefaultMaxLifetime, "for how long JWTs may be good, from iat to exp; 0: any time")
	flags.StringVar(&o.tokens.DefaultNamespace, "default-namespace", "default",
		"namespace of jobs that name none, and whose token names none")
	flags.BoolVar(&o.trial, "trial", false,
		"make a secret for tokens, keep it in --data-dir, print a token that is valid for everything, and do not ask Kubernetes what its user "+
			"may do (default where no server, no secret and no cluster is named)")
	o.cluster.addFlags(flags)
	flags.IntVar(&o.limits.Create, "rate-limit-create", rest.DefaultLimits.Create, "requests of a client per minute that submit jobs, a batch counted as one; 0: no limit")
	flags.IntVar(&o.limits.Jobs, "rate-limit-jobs", rest.DefaultLimits.Jobs, "jobs submitted by a client per minute; 0: no limit")
	flags.IntVar(&o.limits.List, "rate-limit-list", rest.DefaultLimits.List, "lists of jobs for a client per minute; 0: no limit")
	flags.IntVar(&o.limits.Tasks, "rate-limit-tasks", rest.DefaultLimits.Tasks, "requests of a worker per minute; 0: no limit")
	flags.IntVar(&o.limits.Other, "rate-limit-other", rest.DefaultLimits.Other, "other requests of a client per minute; 0: no limit")
	flags.IntVar(&o.maxOpenJobs, "max-open-jobs", rest.DefaultMaxOpenJobs, "jobs of a namespace that have not ended; 0: no limit")
	flags.IntVar(&o.maxOpenJobsPerUser, "max-open-jobs-per-user", rest.DefaultMaxOpenJobsPerUser,
		"jobs of a user that have not ended, in all namespaces; 0: no limit")
	flags.IPNetSliceVar(&o.trustedProxies, "trusted-proxies", nil,
		"networks of proxies, such as 10.0.0.0/8, whose header X-Forwarded-For says whose an unknown token is (default: none, so that all clients of a proxy share "+
			"the limit of its address)")
	flags.DurationVar(&o.shutdownDelay, "shutdown-delay", 0, "time to go on after the signal to end, until clients have learned of it")
	flags.DurationVar(&o.shutdownTimeout, "shutdown-timeout", 20*time.Second, "time for requests to end after that")
	flags.StringVar(&o.logLevel, "log-level", cmp.Or(os.Getenv("LOG_LEVEL"), "info"), "debug, info, warn or error (environment: LOG_LEVEL)")
}

// settle what depends on whether this is a trial.
func (o *options) settle(flags *pflag.FlagSet) {
	// With flags for tokens, stores or a cluster it is not a trial. In a cluster a trial would grant its users the service's own rights,
	// so there it takes the flag.
	configured := o.tokens.JWKS != "" || o.hmac.given() || o.store.database.given() || o.store.replica.given() || o.store.redis.given() || o.cluster.wanted()
	o.trial = o.trial || !configured
	if o.trial || !inAnyPod() {
		o.store.keepInDataDir = true
	}
	if !o.trial {
		return
	}
	if !flags.Changed("bind-address") {
		o.address = "127.0.0.1:8000"
	}
	if !flags.Changed("metrics-bind-address") {
		o.metricsAddress = "0"
	}
}

// encrypted says whether the REST interface is served by HTTPS.
func (o *options) encrypted() bool { return o.certFile != "" && !o.plainHTTP }

// validate names the flag that is wrong, and the way out.
func (o *options) validate() error {
	if (o.certFile == "") != (o.keyFile == "") {
		return errors.New("--tls-cert-file, --tls-key-file: one is set without the other: set both or none")
	}
	if o.tokens.JWKS != "" && o.tokens.Audience == "" {
		return errors.New("--jwks: needs --token-audience: set it to the aud that the issuer gives to tokens for this service")
	}
	if o.metricsSecure && !o.cluster.wanted() {
		return errors.New("--metrics-secure: needs Kubernetes, which says who may read metrics: set --kubernetes, or remove it")
	}
	if o.tokens.MaxLifetime < 0 {
		return fmt.Errorf("--token-max-lifetime: %s is less than 0: choose a time, or 0 for any", o.tokens.MaxLifetime)
	}
	for name, value := range map[string]int{
		"create": o.limits.Create, "list": o.limits.List, "tasks": o.limits.Tasks, "other": o.limits.Other, "jobs": o.limits.Jobs,
	} {
		if value < 0 {
			return fmt.Errorf("--rate-limit-%s: %d is less than 0: choose a number of requests, or 0 for no limit", name, value)
		}
	}
	for flag, value := range map[string]int{"--max-open-jobs": o.maxOpenJobs, "--max-open-jobs-per-user": o.maxOpenJobsPerUser} {
		if value < 0 {
			return fmt.Errorf("%s: %d is less than 0: choose a number of jobs, or 0 for no limit", flag, value)
		}
	}
	if o.shutdownDelay < 0 || o.shutdownTimeout <= 0 {
		return fmt.Errorf("--shutdown-delay, --shutdown-timeout: %s and %s: choose a delay of 0 or more, and a timeout above 0",
			o.shutdownDelay, o.shutdownTimeout)
	}
	return errors.Join(o.store.validate(), o.cluster.validate())
}
