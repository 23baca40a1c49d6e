package auth_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
)

// TestTokensOfAnAttackerAreRefused tries what gets into services that verify JWTs carelessly, where both ways to sign are set up.
func TestTokensOfAnAttackerAreRefused(t *testing.T) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	own, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	der, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	require.NoError(t, err)
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	hs, rs := jwt.SigningMethodHS256, jwt.SigningMethodRS256
	o := options()
	o.Prefix = auth.DefaultPrefix
	o.JWKS = writeKeys(t, filepath.Join(t.TempDir(), "keys.json"), jose.JSONWebKey{Key: &private.PublicKey, KeyID: "k"})
	a := newAuthenticator(t, o)
	const century = 100 * 365 * 24 * time.Hour
	for name, token := range map[string]string{
		"unsigned":                          sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, "k", claims()),
		"the public key as the secret, PEM": sign(t, hs, public, "k", claims()),
		"the public key as the secret, DER": sign(t, hs, der, "k", claims()),
		"a key of its own":                  sign(t, rs, own, "k", claims()),
		"the secret that was documented":    sign(t, hs, []byte(documented), "", claims()),
		"another audience, by the secret":   sign(t, hs, secret, "", claims(with("aud", "other-service"))),
		"another audience, by the issuer":   sign(t, rs, private, "k", claims(with("aud", "other-service"))),
		"no audience":                       sign(t, rs, private, "k", claims(without("aud"))),
		"another issuer, by the secret":     sign(t, hs, secret, "", claims(with("iss", "https://evil.example.com"))),
		"another issuer, by the issuer":     sign(t, rs, private, "k", claims(with("iss", "https://evil.example.com"))),
		"a life of 100 years":               sign(t, rs, private, "k", claims(with("exp", at(century)))),
		"100 years, issued long ago":        sign(t, hs, secret, "", claims(with("exp", at(time.Hour)), with("iat", at(-century)))),
		"100 years, issued in the future":   sign(t, hs, secret, "", claims(with("exp", at(century)), with("iat", at(century-time.Hour)))),
		"a life without end":                sign(t, hs, secret, "", claims(without("exp"))),
		"a user of Kubernetes' own":         sign(t, rs, private, "k", claims(with("sub", "system:admin"))),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := a.Authenticate(t.Context(), token)
			var invalid *auth.InvalidToken
			require.ErrorAs(t, err, &invalid)
		})
	}
	for name, token := range map[string]string{
		"by the secret": sign(t, hs, secret, "", claims(with("groups", []string{"kubeadm:cluster-admins", "system:masters"}), with("iat", at(0)))),
		"by the issuer": sign(t, rs, private, "k", claims(with("groups", []string{"kubeadm:cluster-admins", "system:masters"}), with("iat", at(0)))),
	} {
		t.Run("neither a user nor a group of Kubernetes, "+name, func(t *testing.T) {
			identity, err := a.Authenticate(t.Context(), token)
			require.NoError(t, err)
			assert.Equal(t, "jwt:alice", identity.User.Username)
			assert.Equal(t, []string{"jwt:kubeadm:cluster-admins", "system:authenticated"}, identity.User.Groups)
		})
	}
}

// documented is the secret in the guide of versions up to 0.3.
const documented = "replace this by 32 random bytes or more"

func TestSecretsThatCanBeGuessed(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "guide", "platform-service.md"))
	require.NoError(t, err)
	weak := []string{documented, "", "short", strings.Repeat("a", 64), strings.Repeat("0123", 16)}
	for _, found := range regexp.MustCompile(`JOB_SERVICE_HMAC_SECRET: ([^#\n]+)`).FindAllStringSubmatch(string(page), -1) {
		weak = append(weak, strings.TrimSpace(found[1]))
	}
	require.Len(t, weak, 6, "the guide has an example")
	for _, text := range weak {
		_, err := auth.New(auth.Options{Secrets: [][]byte{[]byte(text)}})
		require.ErrorContains(t, err, "openssl rand -hex 32", text)
		_, err = auth.Sign([]byte(text), auth.Claims{RegisteredClaims: jwt.RegisteredClaims{ExpiresAt: at(time.Hour)}})
		require.ErrorContains(t, err, "openssl rand -hex 32", text)
	}
}
