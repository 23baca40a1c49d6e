package main

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// loadUser is who plays users, scheduler and kubelets where no other program does. It may do everything, and its requests are not limited.
const loadUser = "load"

func tokenOf(name string) string { return "token-of-" + name }

// writeTokens writes the file of the users that a bare cluster knows, who have tokens. The manager has one when it is installed, too:
// certificates, which the users of other clusters here have, cost the API server a signature with every request.
func (c *cluster) writeTokens() (string, error) {
	path := filepath.Join(c.folder, "tokens.csv")
	text := fmt.Sprintf("%s,%s,1,\"system:masters\"\n%s,%s,2,\"system:serviceaccounts,system:serviceaccounts:%s\"\n",
		tokenOf(loadUser), loadUser, tokenOf(managerUser), managerUser, managerNamespace)
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// kubeconfigOf is the text of a kubeconfig for a user.
func (c *cluster) kubeconfigOf(name string, groups []string) ([]byte, error) {
	if !c.options.bare {
		user, err := c.env.AddUser(envtest.User{Name: name, Groups: groups}, nil)
		if err != nil {
			return nil, err
		}
		return user.KubeConfig()
	}
	const cluster = "bare"
	config := api.NewConfig()
	config.Clusters[cluster] = &api.Cluster{Server: c.config.Host, CertificateAuthorityData: c.config.CAData}
	config.AuthInfos[name] = &api.AuthInfo{Token: tokenOf(name)}
	config.Contexts[cluster] = &api.Context{Cluster: cluster, AuthInfo: name}
	config.CurrentContext = cluster
	return clientcmd.Write(*config)
}
