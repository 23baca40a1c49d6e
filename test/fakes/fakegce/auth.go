package fakegce

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	tokenPath     = "/token"
	tokenLifetime = time.Hour
	// serviceAccount is the one whose key CredentialsJSON is.
	serviceAccount = "operator@%s.iam.gserviceaccount.com"
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
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		panic(err)
	}
	file, err := json.MarshalIndent(map[string]string{
		"type":           "service_account",
		"project_id":     s.opts.Project,
		"private_key_id": "0123456789abcdef",
		"private_key":    string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
		"client_email":   s.email(),
		"client_id":      "100000000000000000001",
		"token_uri":      s.url + tokenPath,
	}, "", "  ")
	if err != nil {
		panic(err)
	}
	return file
}

func (s *Server) email() string { return strings.Replace(serviceAccount, "%s", s.opts.Project, 1) }

// RevokeTokens lets all access tokens that were given so far end at once.
func (s *Server) RevokeTokens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = map[string]time.Time{}
}

// authorize says why a request's access token does not allow it.
func (s *Server) authorize(r *http.Request, m *method) *refusal {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.mu.Lock()
	defer s.mu.Unlock()
	if until, ok := s.tokens[token]; token == "" || !ok || time.Now().After(until) {
		return refuse(http.StatusUnauthorized, "authError", "Request had invalid authentication credentials. "+
			"Expected OAuth 2 access token, login cookie or other valid authentication credential.")
	}
	if s.denied[m.ID] || s.denied[""] {
		return refuse(http.StatusForbidden, "forbidden", "Required '%s' permission for 'projects/%s'",
			strings.Replace(m.ID, "insert", "create", 1), s.opts.Project)
	}
	return nil
}

// serveToken gives an access token for a signed assertion, as RFC 7523 has it.
func (s *Server) serveToken(w http.ResponseWriter, r *http.Request) {
	refuseToken := func(reason string) {
		w.Header().Set("Content-Type", "application/json; charset=UTF-8")
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": "invalid_grant", "error_description": reason})
	}
	if r.Method != http.MethodPost || r.FormValue("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" {
		refuseToken("Unsupported grant type.")
		return
	}
	if problem := s.checkAssertion(r.FormValue("assertion")); problem != "" {
		refuseToken(problem)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"access_token": s.grantToken(), "token_type": "Bearer", "expires_in": int(tokenLifetime.Seconds()),
	})
}

func (s *Server) grantToken() string {
	var random [16]byte
	_, _ = rand.Read(random[:])
	token := "ya29." + hex.EncodeToString(random[:])
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[token] = time.Now().Add(tokenLifetime)
	return token
}

func (s *Server) checkAssertion(assertion string) (problem string) {
	parts := strings.Split(assertion, ".")
	if len(parts) != 3 {
		return "Bad Request"
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return "Bad Request"
	}
	digest := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if rsa.VerifyPKCS1v15(&accountKey().PublicKey, crypto.SHA256, digest[:], signature) != nil {
		return "Invalid JWT Signature."
	}
	var claims struct {
		Issuer   string `json:"iss"`
		Audience string `json:"aud"`
		Scope    string `json:"scope"`
		Expires  int64  `json:"exp"`
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil {
		return "Bad Request"
	}
	scopes := strings.Fields(claims.Scope)
	switch {
	case claims.Issuer != s.email():
		return "Invalid grant: account not found"
	case claims.Audience != s.url+tokenPath:
		return "Invalid JWT: Failed audience check."
	case time.Now().After(time.Unix(claims.Expires, 0)):
		return "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe."
	case !slices.Contains(scopes, "https://www.googleapis.com/auth/compute") &&
		!slices.Contains(scopes, "https://www.googleapis.com/auth/cloud-platform"):
		return "Invalid OAuth scope or ID token audience provided."
	}
	return ""
}
