package gcp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"sync"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
	"google.golang.org/api/compute/v1"

	"github.com/dcnlab/spot-training-operator/internal/cloud"
)

// tokenError says that it was the request for a token that failed, not the call.
type tokenError struct{ error }

func (e *tokenError) Unwrap() error { return e.error }

// authTransport puts the access token on each call, the same one until it runs out. It lets go of a token that Google
// refuses, so that the next call comes with a new one.
type authTransport struct {
	base      http.RoundTripper
	newSource func() oauth2.TokenSource

	mu     sync.Mutex
	source oauth2.TokenSource
}

func (t *authTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := t.token()
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, &tokenError{err}
	}
	r = r.Clone(r.Context())
	token.SetAuthHeader(r)
	answer, err := t.base.RoundTrip(r)
	if err == nil && answer.StatusCode == http.StatusUnauthorized {
		t.mu.Lock()
		t.source = nil
		t.mu.Unlock()
	}
	return answer, err
}

func (t *authTransport) token() (*oauth2.Token, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.source == nil {
		t.source = t.newSource()
	}
	return t.source.Token()
}

// newTokenSource returns what makes sources of access tokens.
func newTokenSource(ctx context.Context, opts Options) (func() oauth2.TokenSource, error) {
	if len(opts.Credentials) == 0 {
		found, err := google.FindDefaultCredentials(ctx, compute.ComputeScope)
		if err != nil {
			return nil, &cloud.Error{
				Class: cloud.Permission, Code: "NoCredentials", Err: err,
				Message: "there are no credentials: name a Secret with the key credentials.json, or give the operator a workload identity",
			}
		}
		return func() oauth2.TokenSource { return found.TokenSource }, nil
	}
	if err := checkKey(opts.Credentials, opts.Endpoint); err != nil {
		return nil, &cloud.Error{Class: cloud.Permission, Code: "InvalidCredentials", Message: err.Error(), Err: err}
	}
	config, err := google.JWTConfigFromJSON(opts.Credentials, compute.ComputeScope)
	if err != nil {
		return nil, &cloud.Error{Class: cloud.Permission, Code: "InvalidCredentials", Message: err.Error(), Err: err}
	}
	// The context of a token source lives as long as the source: it only carries an HTTP client.
	client := &http.Client{Timeout: callTimeout}
	background := context.WithValue(context.Background(), oauth2.HTTPClient, client)
	return func() oauth2.TokenSource { return config.TokenSource(background) }, nil
}

// checkKey refuses all but a key of a service account that gets its tokens from Google, or from the endpoint that the
// administrator set. Other kinds of credentials name files, programs and addresses, and a user's Secret must not make
// the operator read, run or call these.
func checkKey(credentials []byte, endpoint string) error {
	var key struct {
		Type       string `json:"type"`
		Email      string `json:"client_email"`
		PrivateKey string `json:"private_key"`
		TokenURI   string `json:"token_uri"`
	}
	if err := json.Unmarshal(credentials, &key); err != nil {
		return errors.New("credentials.json is no JSON: put the file of a service account key into the Secret as it is")
	}
	if key.Type != "service_account" {
		return errors.New("credentials.json is of type '" + printable(key.Type) +
			"', not service_account: create a key of a service account and put its file into the Secret")
	}
	if key.Email == "" || key.PrivateKey == "" {
		return errors.New("credentials.json lacks client_email or private_key: put the whole file of the key into the Secret")
	}
	if _, err := jwt.ParseRSAPrivateKeyFromPEM([]byte(key.PrivateKey)); err != nil {
		// The cause may quote the key: it is left out.
		return errors.New("private_key in credentials.json is no private key in PEM: put the whole file of the key into the Secret, unchanged")
	}
	if key.TokenURI == "" || isTrustedTokenURI(key.TokenURI, endpoint) {
		return nil
	}
	return errors.New("token_uri in credentials.json is not Google's: use the file as Google gave it, with https://oauth2.googleapis.com/token")
}

func isTrustedTokenURI(uri, endpoint string) bool {
	parsed, err := url.Parse(uri)
	if err != nil {
		return false
	}
	if own, err := url.Parse(endpoint); err == nil && endpoint != "" && parsed.Scheme == own.Scheme && parsed.Host == own.Host {
		return true
	}
	return parsed.Scheme == "https" && parsed.User == nil &&
		(parsed.Host == "oauth2.googleapis.com" || parsed.Host == "accounts.google.com" || parsed.Host == "www.googleapis.com")
}

// printable cuts a word of a user's file to what may stand in a message.
func printable(word string) string {
	word = strange.ReplaceAllString(word, "")
	return word[:min(len(word), 40)]
}

var strange = regexp.MustCompile(`[^a-z_]`)
