package cluster

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/pki"
)

func (l Layout) pki(name string) string { return l.data("pki", name) }

type certificate struct {
	name      string
	authority *pki.Authority
	request   pki.Request
}

type user struct {
	file    string
	request pki.Request
}

func users(simulate bool) []user {
	list := []user{
		{"kube-controller-manager", pki.Request{CommonName: "system:kube-controller-manager"}},
		{"kube-scheduler", pki.Request{CommonName: "system:kube-scheduler"}},
	}
	if simulate {
		return list
	}
	return append(list,
		user{"kubelet", pki.Request{CommonName: "system:node:" + NodeName, Organizations: []string{"system:nodes"}}},
		user{"kube-proxy", pki.Request{CommonName: "system:kube-proxy"}},
		user{"coredns", pki.Request{CommonName: "system:coredns"}},
	)
}

// writeCredentials makes all keys, certificates and kubeconfigs. Authorities and the key of service
// account tokens are kept from an earlier start; everything else is issued again, so nothing expires.
func writeCredentials(layout Layout, options Options) error {
	dir := layout.data("pki")
	ca, err := pki.LoadOrCreate(dir, "ca")
	if err != nil {
		return err
	}
	frontProxyCA, err := pki.LoadOrCreate(dir, "front-proxy-ca")
	if err != nil {
		return err
	}
	etcdCA, err := pki.LoadOrCreate(dir, "etcd-ca")
	if err != nil {
		return err
	}
	if err := pki.SigningKey(dir, "service-account"); err != nil {
		return err
	}
	serviceIP, err := nthAddress(options.ServiceCIDR, 1)
	if err != nil {
		return err
	}
	certificates := []certificate{
		{"kube-apiserver", ca, pki.Request{CommonName: "kube-apiserver", Hosts: []string{
			options.address(), "127.0.0.1", serviceIP, "localhost", "kubernetes", "kubernetes.default",
			"kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		}}},
		{"kube-apiserver-kubelet-client", ca, pki.Request{CommonName: "kube-apiserver-kubelet-client"}},
		{"front-proxy-client", frontProxyCA, pki.Request{CommonName: "front-proxy-client"}},
		{"etcd", etcdCA, pki.Request{CommonName: "etcd", Hosts: []string{"127.0.0.1", "localhost"}}},
		{"kube-apiserver-etcd-client", etcdCA, pki.Request{CommonName: "kube-apiserver-etcd-client"}},
		{"kube-controller-manager", ca, pki.Request{CommonName: "kube-controller-manager", Hosts: []string{"127.0.0.1", "localhost"}}},
		{"kube-scheduler", ca, pki.Request{CommonName: "kube-scheduler", Hosts: []string{"127.0.0.1", "localhost"}}},
		{"kubelet", ca, pki.Request{CommonName: "system:node:" + NodeName, Organizations: []string{"system:nodes"}, Hosts: []string{options.NodeIP, NodeName, "127.0.0.1"}}},
	}
	for _, c := range certificates {
		pair, err := c.authority.Issue(c.request)
		if err != nil {
			return err
		}
		if err := pair.Write(dir, c.name); err != nil {
			return err
		}
	}
	for _, u := range users(options.Simulate) {
		if err := writeKubeconfig(layout.kubeconfig(u.file), options, ca, u.request); err != nil {
			return err
		}
	}
	admin := pki.Request{CommonName: "kubernetes-admin", Organizations: []string{"system:masters"}}
	return writeKubeconfig(layout.Kubeconfig(), options, ca, admin)
}

// writeKubeconfig writes a kubeconfig with everything inside, so that it can be copied.
func writeKubeconfig(path string, options Options, ca *pki.Authority, request pki.Request) error {
	pair, err := ca.Issue(request)
	if err != nil {
		return err
	}
	const name = "localcluster"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: options.APIServer(), CertificateAuthorityData: ca.PEM()}
	config.AuthInfos[request.CommonName] = &clientcmdapi.AuthInfo{
		ClientCertificateData: pair.Certificate, ClientKeyData: pair.Key,
	}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: request.CommonName}
	config.CurrentContext = name
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig of %s: %w", request.CommonName, err)
	}
	return nil
}
