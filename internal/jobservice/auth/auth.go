// Package auth tells who sends a request to the job service, from a bearer token, and what they may do. Tokens are JWTs that are
// signed with a secret or with a key of a JWKS, or those that Kubernetes gives to ServiceAccounts.
package auth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"k8s.io/apimachinery/pkg/util/cache"
)

const (
	// verifiedFor is the longest time that a token counts as verified, so that a key or ServiceAccount that was taken away
	// does not stay in use until the token expires.
	verifiedFor = 5 * time.Minute
	reviewedFor = 30 * time.Second
	refusedFor  = 10 * time.Second
	// leeway for clocks that differ.
	leeway = 30 * time.Second
	// maxTokens that are cached.
	maxTokens = 20_000
	// seenFor is how long a token that was verified is told from one that was made up; it is verified again meanwhile.
	seenFor = time.Hour
	// maxTokenBytes is what fits into a header next to everything else.
	maxTokenBytes = 16 << 10
)

// The defaults of the flags.
const (
	// DefaultPrefix keeps the users and groups of JWTs apart from those of Kubernetes.
	DefaultPrefix = "jwt:"
	// DefaultMaxLifetime of a JWT.
	DefaultMaxLifetime = 24 * time.Hour
)

// ErrUnavailable says that a server needed to verify a token does not answer.
var ErrUnavailable = errors.New("the token cannot be verified now")

// InvalidToken is the error of a token that is not accepted.
type InvalidToken struct {
	// Reason for its owner.
	Reason string
}

// Error implements error.
func (e *InvalidToken) Error() string { return e.Reason }

// Options of an Authenticator. At least one of Secrets, JWKS and Reviewer is needed.
type Options struct {
	// Secrets that JWTs may be signed with by HMAC, each of at least 32 bytes; several while one replaces another.
	Secrets [][]byte
	// JWKS is the https URL or the path of a file with the public keys of an issuer, and needs an Audience: an issuer signs tokens for others, too.
	JWKS string
	// LoopbackJWKS lets JWKS be an http URL of this machine, for tests.
	LoopbackJWKS bool
	// Issuer and Audience that a JWT must name; empty: any.
	Issuer, Audience string
	// Prefix is put before the user and the groups of a JWT; empty: a signer of JWTs can name any user and group of Kubernetes outside of system:.
	Prefix string
	// MaxLifetime of a JWT, from iat or, without it, from now until exp; 0: any.
	MaxLifetime time.Duration
	// DefaultNamespace of a JWT that names none.
	DefaultNamespace string
	// Reviewer of Kubernetes' tokens; nil: they are not accepted.
	Reviewer TokenReviewer
	// Now is the clock; nil: the real one.
	Now func() time.Time
}

// Authenticator verifies tokens. Safe for concurrent use.
type Authenticator struct {
	options Options
	secrets jwt.VerificationKeySet
	keys    *keySet
	hmac    *jwt.Parser
	signed  *jwt.Parser
	// Tokens are cached by their hash, so that they are not kept in memory.
	known, refused, seen *cache.LRUExpireCache
}

// New returns an Authenticator. It does not fetch the keys before the first token.
func New(options Options) (*Authenticator, error) {
	if len(options.Secrets) == 0 && options.JWKS == "" && options.Reviewer == nil {
		return nil, errors.New("no way to verify a token: give a secret, a JWKS or access to Kubernetes")
	}
	var secrets jwt.VerificationKeySet
	for _, secret := range options.Secrets {
		if err := checkSecret(secret); err != nil {
			return nil, err
		}
		secrets.Keys = append(secrets.Keys, secret)
	}
	if strings.HasPrefix(options.Prefix, reserved) {
		return nil, fmt.Errorf("the prefix %s begins with %s, which only Kubernetes' own users do: choose another", options.Prefix, reserved)
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	options.DefaultNamespace = cmp.Or(options.DefaultNamespace, "default")
	a := &Authenticator{
		options: options,
		secrets: secrets,
		hmac:    parser(options, hmacMethods),
		signed:  parser(options, signatureMethods),
		known:   cache.NewLRUExpireCacheWithClock(maxTokens, clock(options.Now)),
		refused: cache.NewLRUExpireCacheWithClock(maxTokens, clock(options.Now)),
		seen:    cache.NewLRUExpireCacheWithClock(maxTokens, clock(options.Now)),
	}
	if options.JWKS != "" {
		if options.Audience == "" {
			return nil, errors.New("a JWKS needs an audience: without it a token that the issuer signed for another service is accepted here")
		}
		if err := checkSource(options.JWKS, options.LoopbackJWKS); err != nil {
			return nil, err
		}
		a.keys = newKeySet(options.JWKS, options.Now)
	}
	return a, nil
}

// The algorithms are pinned for each kind of key, so that none can be passed off as another, nor left out.
var (
	hmacMethods      = []string{"HS256", "HS384", "HS512"}
	signatureMethods = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)

func parser(options Options, methods []string) *jwt.Parser {
	settings := []jwt.ParserOption{
		jwt.WithValidMethods(methods), jwt.WithExpirationRequired(), jwt.WithLeeway(leeway), jwt.WithTimeFunc(options.Now),
		jwt.WithStrictDecoding(), jwt.WithIssuer(options.Issuer), // an empty one is any
	}
	if options.Audience != "" {
		settings = append(settings, jwt.WithAudience(options.Audience))
	}
	return jwt.NewParser(settings...)
}

// Authenticate returns the identity of a token. Errors: *InvalidToken, ErrUnavailable.
func (a *Authenticator) Authenticate(ctx context.Context, token string) (*Identity, error) {
	if len(token) > maxTokenBytes {
		return nil, &InvalidToken{Reason: fmt.Sprintf("the token has %d bytes, more than %d", len(token), maxTokenBytes)}
	}
	key := sha256.Sum256([]byte(token))
	if identity, ok := cached[*Identity](a.known, key); ok {
		return identity, nil
	}
	if refusal, ok := cached[*InvalidToken](a.refused, key); ok {
		return nil, refusal
	}
	identity, until, err := a.verify(ctx, token, a.options.Now())
	var invalid *InvalidToken
	switch {
	case err == nil:
		identity.key = key
		a.known.Add(key, identity, until.Sub(a.options.Now()))
		a.seen.Add(key, struct{}{}, seenFor)
	case errors.As(err, &invalid):
		a.refused.Add(key, invalid, refusedFor)
	}
	return identity, err
}

// Knows says whether Authenticate can answer without a server: the token was verified or refused lately, or needs no server. Others may be
// made up to keep a server busy.
func (a *Authenticator) Knows(token string) bool {
	if len(token) > maxTokenBytes {
		return true
	}
	key := sha256.Sum256([]byte(token))
	if _, ok := a.seen.Get(key); ok {
		return true
	}
	if _, ok := a.refused.Get(key); ok {
		return true
	}
	header, err := readHeader(token)
	return err != nil || strings.HasPrefix(header.Algorithm, "HS") && len(a.options.Secrets) > 0 || a.keys == nil && a.options.Reviewer == nil
}

// verify also says until when the answer holds.
func (a *Authenticator) verify(ctx context.Context, token string, now time.Time) (*Identity, time.Time, error) {
	header, err := readHeader(token)
	if err != nil {
		return nil, now, err
	}
	var identity *Identity
	switch isHMAC := strings.HasPrefix(header.Algorithm, "HS"); {
	case isHMAC && len(a.options.Secrets) > 0:
		identity, err = a.verifyJWT(a.hmac, token, a.secrets)
	case !isHMAC && a.keys != nil:
		var candidates jwt.VerificationKeySet
		if candidates, err = a.keys.find(ctx, header.KeyID, header.Algorithm); err == nil {
			identity, err = a.verifyJWT(a.signed, token, candidates)
		}
	case a.options.Reviewer == nil:
		return nil, now, &InvalidToken{Reason: "the token is signed with an algorithm that is not accepted here"}
	default:
		return a.review(ctx, token, now)
	}
	if err == nil {
		return identity, earlier(identity.Expires.Add(leeway), now.Add(verifiedFor)), nil
	}
	// With both an issuer and Kubernetes, a token may belong to either.
	if !strings.HasPrefix(header.Algorithm, "HS") && a.options.Reviewer != nil {
		return a.review(ctx, token, now)
	}
	return nil, now, err
}

// header of a JWT, which says by which key it is to be verified. Nothing else in it is trusted.
type header struct {
	Algorithm string `json:"alg"`
	KeyID     string `json:"kid"`
}

func readHeader(token string) (header, error) {
	var h header
	encoded, rest, found := strings.Cut(token, ".")
	if !found || strings.Count(rest, ".") != 1 {
		return h, &InvalidToken{Reason: "the token is not a JWT: it does not have three parts"}
	}
	text, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || json.Unmarshal(text, &h) != nil {
		return h, &InvalidToken{Reason: "the token is not a JWT: its header cannot be decoded"}
	}
	return h, nil
}

func (a *Authenticator) verifyJWT(parser *jwt.Parser, token string, keys jwt.VerificationKeySet) (*Identity, error) {
	var claims Claims
	if _, err := parser.ParseWithClaims(token, &claims, func(*jwt.Token) (any, error) { return keys, nil }); err != nil {
		return nil, &InvalidToken{Reason: reason(err)}
	}
	if err := a.checkLifetime(&claims); err != nil {
		return nil, err
	}
	return claims.identity(a.options.Prefix, a.options.DefaultNamespace)
}

// checkLifetime refuses a token that is good for too long: it cannot be taken back.
func (a *Authenticator) checkLifetime(claims *Claims) error {
	from := a.options.Now()
	if claims.IssuedAt != nil && claims.IssuedAt.Before(from) {
		from = claims.IssuedAt.Time
	}
	if most := a.options.MaxLifetime; most > 0 && claims.ExpiresAt.Sub(from) > most+leeway {
		return &InvalidToken{Reason: fmt.Sprintf("the token is good for longer than %s", most)}
	}
	return nil
}

// reason says what is wrong with a token, without what the library says of its own working.
func reason(err error) string {
	for _, known := range []struct {
		err  error
		text string
	}{
		{jwt.ErrTokenMalformed, "the token is not a JWT, or a claim has the wrong type"},
		{jwt.ErrTokenSignatureInvalid, "the signature of the token is wrong"},
		{jwt.ErrTokenUnverifiable, "no key fits the token"},
		{jwt.ErrTokenRequiredClaimMissing, "the token lacks a claim: exp is required, and iss and aud where the service asks for them"},
		{jwt.ErrTokenExpired, "the token has expired"},
		{jwt.ErrTokenNotValidYet, "the token is not valid yet"},
		{jwt.ErrTokenUsedBeforeIssued, "the token was issued in the future"},
		{jwt.ErrTokenInvalidIssuer, "the token has another issuer than this service accepts"},
		{jwt.ErrTokenInvalidAudience, "the token is for another audience"},
	} {
		if errors.Is(err, known.err) {
			return known.text
		}
	}
	return "the token is not valid"
}

func (a *Authenticator) review(ctx context.Context, token string, now time.Time) (*Identity, time.Time, error) {
	user, authenticated, err := a.options.Reviewer.Review(ctx, token)
	if err != nil {
		return nil, now, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if !authenticated {
		return nil, now, &InvalidToken{Reason: "the token is neither a JWT of an issuer that this service accepts, nor one of this cluster"}
	}
	until := now.Add(reviewedFor)
	// Kubernetes has just verified the token, so that its claims can be believed without looking at the signature.
	var claims jwt.RegisteredClaims
	expires := until
	if _, _, err := jwt.NewParser().ParseUnverified(token, &claims); err == nil && claims.ExpiresAt != nil {
		expires = claims.ExpiresAt.Time
	}
	identity := &Identity{
		User: user, Kubernetes: true, AllNamespaces: true, Expires: expires,
		DefaultNamespace: a.options.DefaultNamespace, Scopes: []string{ScopeRead, ScopeWrite, ScopeWork},
	}
	if rest, ok := strings.CutPrefix(user.Username, "system:serviceaccount:"); ok {
		identity.DefaultNamespace, _, _ = strings.Cut(rest, ":")
	}
	return identity, earlier(until, expires), nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// clock is the clock of a cache.
type clock func() time.Time

// Now implements cache.Clock.
func (c clock) Now() time.Time { return c() }

// cached returns an unexpired value.
func cached[V any](from *cache.LRUExpireCache, key any) (V, bool) {
	value, ok := from.Get(key)
	typed, _ := value.(V)
	return typed, ok
}
