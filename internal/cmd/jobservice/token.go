package jobservice

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/spf13/cobra"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
)

// tokenOptions are the flags of the subcommand that signs tokens.
type tokenOptions struct {
	hmac     hmacFlags
	dataDir  string
	claims   auth.Claims
	audience string
	life     time.Duration
}

func newToken() *cobra.Command {
	var o tokenOptions
	command := &cobra.Command{
		Use:   "token",
		Short: "Sign a token for the job service with its HMAC secret, and print it",
		Example: "  job-service token --subject alice --scope 'jobs:read jobs:write' --namespaces team-a\n" +
			"  job-service token --subject worker-1 --scope tasks:work --queues inference --hmac-secret-file secret",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			secret, err := o.secret()
			if err != nil {
				return err
			}
			if o.audience != "" {
				o.claims.Audience = jwt.ClaimStrings{o.audience}
			}
			token, err := sign(secret, o.claims, o.life)
			if err == nil {
				_, err = fmt.Fprintln(command.OutOrStdout(), token)
			}
			return err
		},
	}
	flags := command.Flags()
	o.hmac.add(flags)
	flags.StringVar(&o.dataDir, "data-dir", "job-service-data", "folder of a trial, whose secret is used when no other is given")
	flags.StringVar(&o.claims.Subject, "subject", "trial", "user that the token is for (claim sub)")
	flags.StringVar(&o.claims.Scope, "scope", everything, "what the token is good for, with blanks between: jobs:read, jobs:write, tasks:work")
	flags.StringSliceVar((*[]string)(&o.claims.Namespaces), "namespaces", []string{"*"}, "namespaces that the token is good for; * is every one")
	flags.StringVar(&o.claims.Namespace, "namespace", "", "namespace of jobs that name none (default: the first of --namespaces, or the service's)")
	flags.StringSliceVar((*[]string)(&o.claims.Groups), "groups", nil, "groups of the user, for Kubernetes' RBAC")
	flags.StringSliceVar((*[]string)(&o.claims.Queues), "queues", nil, "queues whose tasks the token is good for (default: all)")
	flags.StringVar(&o.claims.Issuer, "issuer", "", "claim iss")
	flags.StringVar(&o.audience, "audience", "", "claim aud")
	flags.DurationVar(&o.life, "expires-in", trialTokenLife, "how long the token is good for; the service refuses more than its --token-max-lifetime")
	return command
}

// secret to sign with: the first that is given, else that of a trial.
func (o *tokenOptions) secret() ([]byte, error) {
	secrets, err := o.hmac.read()
	if err != nil {
		return nil, err
	}
	if len(secrets) > 0 {
		return secrets[0], nil
	}
	text, err := readSecret(filepath.Join(o.dataDir, trialSecret))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("there is no secret: set --hmac-secret-file, or %s, or --data-dir to the folder of a trial", hmacVariable)
	}
	if err != nil {
		return nil, fmt.Errorf("--data-dir: %w", err)
	}
	return []byte(text), nil
}

// sign a token that is good for a time.
func sign(secret []byte, claims auth.Claims, life time.Duration) (string, error) {
	if claims.Subject == "" {
		return "", errors.New("--subject: is empty: name a user")
	}
	if life <= 0 {
		return "", fmt.Errorf("--expires-in: %s is not above 0", life)
	}
	known := strings.Fields(everything)
	for _, scope := range strings.Fields(claims.Scope) {
		if !slices.Contains(known, scope) {
			return "", fmt.Errorf("--scope: %q is none of %s", scope, strings.Join(known, ", "))
		}
	}
	now := time.Now()
	claims.IssuedAt, claims.ExpiresAt = jwt.NewNumericDate(now), jwt.NewNumericDate(now.Add(life))
	token, err := auth.Sign(secret, claims)
	if err != nil {
		return "", fmt.Errorf("sign the token: %w", err)
	}
	return token, nil
}
