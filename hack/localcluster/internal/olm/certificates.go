package olm

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/cluster"
	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/pki"
)

// authority is the name of the authority that both servers and their clients trust.
const authority = "olmv1-ca"

// certificates returns the authority's certificate and the servers of OLM v1 with theirs. They are kept in dir, so that a
// second start changes nothing.
func certificates(dir string) (ca string, servers []server, err error) {
	issuer, err := pki.LoadOrCreate(dir, authority)
	if err != nil {
		return "", nil, err
	}
	for _, name := range []string{"catalogd", "operator-controller"} {
		file := "olmv1-" + name
		if _, err := os.Stat(filepath.Join(dir, file+".crt")); errors.Is(err, fs.ErrNotExist) {
			host := name + "-service." + v1Namespace + ".svc"
			request := pki.Request{CommonName: name, Hosts: []string{host, host + ".cluster.local", "localhost"}}
			if err := issuer.IssueFiles(dir, file, request); err != nil {
				return "", nil, err
			}
		}
		certificate, err := os.ReadFile(filepath.Join(dir, file+".crt"))
		if err != nil {
			return "", nil, err
		}
		key, err := os.ReadFile(filepath.Join(dir, file+".key"))
		if err != nil {
			return "", nil, err
		}
		servers = append(servers, server{Name: name, Certificate: string(certificate), Key: string(key)})
	}
	return string(issuer.PEM()), servers, nil
}

func registries(layout cluster.Layout) (conf, policy string, err error) {
	path := layout.RegistriesConf()
	content, err := os.ReadFile(path)
	if err != nil {
		return "", "", err
	}
	conf = string(content)
	content, err = os.ReadFile(filepath.Join(filepath.Dir(path), "policy.json"))
	return conf, string(content), err
}
