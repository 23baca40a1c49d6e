package jobservice

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
)

const (
	// trialSecret is the file of the secret that a trial makes for itself.
	trialSecret = "hmac-secret"
	// trialTokenLife is how long the token is good for that a trial prints.
	trialTokenLife = 24 * time.Hour
)

// everything is all that a token can be good for.
const everything = auth.ScopeRead + " " + auth.ScopeWrite + " " + auth.ScopeWork

// trialClaims are those of the token that a trial prints.
var trialClaims = auth.Claims{
	RegisteredClaims: jwt.RegisteredClaims{Subject: "trial"}, Scope: everything, Namespaces: auth.Texts{"*"},
}

// keepSecret returns the secret of a trial, which it makes the first time.
func keepSecret(folder string) ([]byte, error) {
	file := filepath.Join(folder, trialSecret)
	text, err := readSecret(file)
	if err == nil {
		return []byte(text), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the secret of the trial: %w", err)
	}
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails
	secret := []byte(hex.EncodeToString(random))
	if err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(file, append(secret, '\n'), 0o600)); err != nil {
		return nil, fmt.Errorf("the secret of the trial: %w", err)
	}
	return secret, nil
}

// welcome prints how to begin.
func welcome(out io.Writer, url, folder string, secret []byte) error {
	token, err := sign(secret, trialClaims, trialTokenLife)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, `The job service is on trial at %[1]s and keeps its data in %[2]s.

export JOB_SERVICE_URL=%[1]s
export JOB_SERVICE_TOKEN=%[3]s

curl -H "Authorization: Bearer $JOB_SERVICE_TOKEN" -H "Content-Type: application/json" \
  -d '{"job_type": "inference", "config": {"text": "hello"}}' $JOB_SERVICE_URL/api/v1/jobs/

The token is good for a day; "job-service token --data-dir %[2]s" makes another. The interface is described at %[1]s/api/v1/docs.
`, url, folder, token)
	return err
}
