package cluster

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/pki"
)

func (l Layout) pki(name string) string { return l.data("pki", name) }

// writeCredentials makes all keys, certificates and kubeconfigs. Authorities and the key of service
// account tokens are kept from an earlier start; everything else is issued again, so nothing expires.
func writeCredentials(layout Layout, options Options) error {
	dir := layout.PKI()
	authorities := map[string]*pki.Authority{}
	for _, name := range []string{"ca", "front-proxy-ca", "etcd-ca"} {
		var err error
		if authorities[name], err = pki.LoadOrCreate(dir, name); err != nil {
			return err
		}
	}
	if _, err := pki.SigningKey(layout.pki("service-account.key")); err != nil {
		return err
	}
	serviceIP, err := nthAddress(options.ServiceCIDR, 1)
	if err != nil {
		return err
	}
	local := []string{"127.0.0.1", "localhost"}
	node := pki.Request{CommonName: "system:node:" + NodeName, Organizations: []string{"system:nodes"}}
	for _, c := range []struct {
		name, authority string
		request         pki.Request
	}{
		{"kube-apiserver", "ca", pki.Request{CommonName: "kube-apiserver", Hosts: []string{
			options.Address(), "127.0.0.1", serviceIP, "localhost", "kubernetes", "kubernetes.default",
			"kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		}}},
		{"kube-apiserver-kubelet-client", "ca", pki.Request{CommonName: "kube-apiserver-kubelet-client"}},
		{"front-proxy-client", "front-proxy-ca", pki.Request{CommonName: "front-proxy-client"}},
		{"etcd", "etcd-ca", pki.Request{CommonName: "etcd", Hosts: local}},
		{"kube-apiserver-etcd-client", "etcd-ca", pki.Request{CommonName: "kube-apiserver-etcd-client"}},
		{"kube-controller-manager", "ca", pki.Request{CommonName: "kube-controller-manager", Hosts: local}},
		{"kube-scheduler", "ca", pki.Request{CommonName: "kube-scheduler", Hosts: local}},
		{"kubelet", "ca", pki.Request{CommonName: node.CommonName, Organizations: node.Organizations, Hosts: []string{options.NodeIP, NodeName, "127.0.0.1"}}},
	} {
		if err := authorities[c.authority].IssueFiles(dir, c.name, c.request); err != nil {
			return err
		}
	}
	users := map[string]pki.Request{
		layout.Kubeconfig():                          {CommonName: "kubernetes-admin", Organizations: []string{"system:masters"}},
		layout.kubeconfig("kube-controller-manager"): {CommonName: "system:kube-controller-manager"},
		layout.kubeconfig("kube-scheduler"):          {CommonName: "system:kube-scheduler"},
	}
	if !options.Simulate {
		users[layout.kubeconfig("kubelet")] = node
		users[layout.kubeconfig("kube-proxy")] = pki.Request{CommonName: "system:kube-proxy"}
		users[layout.kubeconfig("coredns")] = pki.Request{CommonName: "system:coredns"}
	}
	for path, user := range users {
		if err := writeKubeconfig(path, options, authorities["ca"], user); err != nil {
			return err
		}
	}
	return nil
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
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig of %s: %w", request.CommonName, err)
	}
	return nil
}
