package auth

import (
	"errors"
	"fmt"
	"slices"
)

const (
	// minSecretBytes of HMAC: shorter ones can be guessed from one token.
	minSecretBytes = 32
	// minSecretVariety is how many different bytes a secret has at least. A random one in hexadecimal digits has 16 as good as always.
	minSecretVariety = 8
)

// knownSecrets stood in the documentation of earlier versions.
var knownSecrets = []string{"replace this by 32 random bytes or more"}

// checkSecret says why a secret must not be used for HMAC.
func checkSecret(secret []byte) error {
	const remedy = "make one by openssl rand -hex 32"
	if len(secret) < minSecretBytes {
		return fmt.Errorf("a secret for tokens has %d bytes: it needs at least %d: %s", len(secret), minSecretBytes, remedy)
	}
	if slices.Contains(knownSecrets, string(secret)) {
		return errors.New("a secret for tokens is the example of the documentation, which all know: " + remedy)
	}
	if different := len(slices.Compact(slices.Sorted(slices.Values(secret)))); different < minSecretVariety {
		return fmt.Errorf("a secret for tokens has only %d different bytes: %s", different, remedy)
	}
	return nil
}
