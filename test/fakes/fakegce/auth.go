package fakegce

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"google.golang.org/api/compute/v1"
)

const (
	tokenPath     = "/token"
	tokenLifetime = time.Hour
)

// The keys of the service account and of a stranger. Making a key is slow, so all servers of a test share them.
var (
	accountKey  = sync.OnceValue(newKey)
	strangerKey = sync.OnceValue(newKey)
)

func newKey() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
}

// CredentialsJSON is a service account key that the server accepts, as it is in a user's Secret.
func (s *Server) CredentialsJSON() []byte { return s.keyFile(accountKey()) }

// RevokedCredentialsJSON is a key that was deleted: it looks right, but no token is given for it.
func (s *Server) RevokedCredentialsJSON() []byte { return s.keyFile(strangerKey()) }

func (s *Server) keyFile(key *rsa.PrivateKey) []byte {
	file, err := json.MarshalIndent(map[string]string{
		"type":           "service_account",
		"project_id":     s.opts.Project,
		"private_key_id": "0123456789abcdef",
		"private_key":    string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
		"client_email":   s.email(),
		"client_id":      "100000000000000000001",
		"token_uri":      s.url + tokenPath,
	}, "", "  ")
	if err != nil {
		panic(err)
	}
	return file
}

// email of the service account whose key CredentialsJSON is.
func (s *Server) email() string { return "operator@" + s.opts.Project + ".iam.gserviceaccount.com" }

// RevokeTokens lets all access tokens that were given so far end at once.
func (s *Server) RevokeTokens() {
	defer s.enter()()
	s.tokens = map[string]time.Time{}
}

// authorize says why a request's access token does not allow it.
func (s *Server) authorize(r *http.Request, method string) *refusal {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	defer s.enter()()
	if until, ok := s.tokens[token]; token == "" || !ok || time.Now().After(until) {
		return refuse(http.StatusUnauthorized, "authError", "Request had invalid authentication credentials. "+
			"Expected OAuth 2 access token, login cookie or other valid authentication credential.")
	}
	if s.denied[method] || s.denied[""] {
		return refuse(http.StatusForbidden, "forbidden", "Required '%s' permission for 'projects/%s'",
			strings.Replace(method, "insert", "create", 1), s.opts.Project)
	}
	return nil
}

// serveToken gives an access token for a signed assertion, as RFC 7523 has it.
func (s *Server) serveToken(w http.ResponseWriter, r *http.Request) {
	problem := "Unsupported grant type."
	if r.Method == http.MethodPost && r.FormValue("grant_type") == "urn:ietf:params:oauth:grant-type:jwt-bearer" {
		problem = s.checkAssertion(r.FormValue("assertion"))
	}
	if problem != "" {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant", "error_description": problem})
		return
	}
	defer s.enter()()
	writeJSON(w, http.StatusOK, s.grantToken())
}

// grantToken makes an access token, in the form in which it is given; s.mu is held.
func (s *Server) grantToken() map[string]any {
	token := "ya29." + rand.Text()
	s.tokens[token] = time.Now().Add(tokenLifetime)
	return map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": int(tokenLifetime.Seconds())}
}

func (s *Server) checkAssertion(assertion string) (problem string) {
	var claims struct {
		jwt.RegisteredClaims

		Scope string `json:"scope"`
	}
	_, err := jwt.ParseWithClaims(assertion, &claims, func(*jwt.Token) (any, error) { return &accountKey().PublicKey, nil },
		jwt.WithValidMethods([]string{"RS256"}), jwt.WithExpirationRequired(), jwt.WithIssuer(s.email()), jwt.WithAudience(s.url+tokenPath))
	scopes := strings.Fields(claims.Scope)
	switch {
	case errors.Is(err, jwt.ErrTokenSignatureInvalid):
		return "Invalid JWT Signature."
	case err != nil:
		return "Invalid JWT: " + err.Error()
	case !slices.Contains(scopes, compute.ComputeScope) && !slices.Contains(scopes, compute.CloudPlatformScope):
		return "Invalid OAuth scope or ID token audience provided."
	}
	return ""
}
