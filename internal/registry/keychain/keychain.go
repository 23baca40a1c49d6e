// Package keychain finds the credentials of a registry in the content of a Secret of type kubernetes.io/dockerconfigjson.
package keychain

import (
	"encoding/json"
	"errors"
	"path"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
)

// Keychain are credentials, by registry or by the first part of a repository's name.
type Keychain map[string]authn.AuthConfig

// ErrUnreadable does not say what was read: it may hold a password.
var ErrUnreadable = errors.New("the credentials of the registry are no JSON as docker login writes it")

// Parse reads the key .dockerconfigjson.
func Parse(text []byte) (Keychain, error) {
	var file struct{ Auths map[string]authn.AuthConfig }
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, ErrUnreadable
	}
	keys := Keychain{}
	for server, auth := range file.Auths {
		keys[serverName(server)] = auth
	}
	return keys, nil
}

// Resolve finds the credentials of the longest part of a repository's name that has some.
func (k Keychain) Resolve(resource authn.Resource) (authn.Authenticator, error) {
	for part := serverName(resource.String()); part != "."; part = path.Dir(part) {
		if config, ok := k[part]; ok {
			return authn.FromConfig(config), nil
		}
	}
	return authn.Anonymous, nil
}

// serverName is a registry, or a repository in it, without what is around it in files of some tools.
func serverName(server string) string {
	server = strings.TrimPrefix(strings.TrimPrefix(server, "https://"), "http://")
	server = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(server, "/"), "/v1"), "/v2")
	if server == "docker.io" {
		return name.DefaultRegistry
	}
	return server
}
