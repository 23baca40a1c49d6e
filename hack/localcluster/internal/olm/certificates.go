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
		host := name + "-service." + v1Namespace + ".svc"
		pair, err := loadOrIssue(issuer, dir, "olmv1-"+name, pki.Request{
			CommonName: name, Hosts: []string{host, host + ".cluster.local", "localhost"},
		})
		if err != nil {
			return "", nil, err
		}
		servers = append(servers, server{Name: name, Certificate: string(pair.Certificate), Key: string(pair.Key)})
	}
	return string(issuer.PEM()), servers, nil
}

func loadOrIssue(issuer *pki.Authority, dir, name string, request pki.Request) (pki.Pair, error) {
	certificate, err := os.ReadFile(filepath.Join(dir, name+".crt"))
	if err == nil {
		key, err := os.ReadFile(filepath.Join(dir, name+".key"))
		return pki.Pair{Certificate: certificate, Key: key}, err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return pki.Pair{}, err
	}
	pair, err := issuer.Issue(request)
	if err != nil {
		return pki.Pair{}, err
	}
	return pair, pair.Write(dir, name)
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
