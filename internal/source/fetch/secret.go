package fetch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/dcnlab/spot-training-operator/api/podtemplate"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/redact"
	"github.com/dcnlab/spot-training-operator/internal/registry/keychain"
	"github.com/dcnlab/spot-training-operator/internal/source"
)

// Keys of the Secret.
const (
	keyUsername   = "username"
	keyPassword   = "password"
	keyToken      = "token"
	keyIdentity   = "identity"
	keyKnownHosts = "known_hosts"
	keyCA         = "ca.crt"
)

// secret has the values of the Secret, by key.
type secret map[string]string

// keysOf are the names of the keys of a mounted Secret or ConfigMap; none where it does not exist. What the kubelet keeps
// beside them begins with two dots.
func keysOf(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if folder == "" || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var keys []string
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), "..") {
			keys = append(keys, entry.Name())
		}
	}
	return keys, err
}

func readSecret(folder string) (secret, error) {
	keys, err := keysOf(folder)
	if err != nil {
		return nil, fmt.Errorf("read the credentials: %w", err)
	}
	s := secret{}
	for _, key := range keys {
		text, err := os.ReadFile(filepath.Join(folder, key))
		if err != nil {
			return nil, fmt.Errorf("read the credentials: %w", err)
		}
		s[key] = strings.TrimSpace(string(text))
	}
	return s, nil
}

// login is the user and the password or token; nothing of it where there are no such keys.
func (s secret) login() (user, password string) {
	if token := s[keyToken]; token != "" && s[keyPassword] == "" {
		return s[keyUsername], token
	}
	return s[keyUsername], s[keyPassword]
}

// redact takes the values out of an error, in case a server repeats one. What is public in them stays.
func (s secret) redact(err error) error {
	if err == nil {
		return nil
	}
	var known []string
	for key, value := range s {
		if key != keyUsername && key != keyCA && key != keyKnownHosts {
			known = append(known, value)
		}
	}
	registries, _ := keychain.Parse([]byte(s[keyDockerConfig])) // none where that cannot be read
	for _, login := range registries {
		known = append(known, login.Password, login.Auth, login.IdentityToken, login.RegistryToken)
	}
	if p, ok := errors.AsType[*source.Problem](err); ok {
		return &source.Problem{Reason: p.Reason, Message: redact.Text(p.Message, known...)}
	}
	return errors.New(redact.Text(err.Error(), known...))
}

// missingSecret says with which keys to create the Secret.
func missingSecret(s podtemplate.Source) error {
	var field, keys string
	switch {
	case s.Git != nil && !strings.HasPrefix(s.Git.URL, "https://"):
		field, keys = "git", "keys identity and known_hosts"
	case s.Git != nil:
		field, keys = "git", "keys username and password, or token"
	case s.OCI != nil:
		field, keys = "oci", "key .dockerconfigjson"
	case strings.HasPrefix(s.Archive.URI, "https://"):
		field, keys = "archive", "keys username and password, or token"
	default:
		field, keys = "archive", "keys that a Secret of spec.checkpoint.storage has"
	}
	return problem(reasons.SourceAccessDenied, "spec.source.%s.secretRef: there is no Secret %s, or it is empty: create it with the %s", field, s.Secret(), keys)
}
