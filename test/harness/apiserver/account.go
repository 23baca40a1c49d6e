package apiserver

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AccountToken returns a token of a ServiceAccount, good for an hour, for an audience; empty: for the API server.
func AccountToken(t testing.TB, admin client.Client, namespace, account, audience string) string {
	t.Helper()
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](3600)}}
	if audience != "" {
		token.Spec.Audiences = []string{audience}
	}
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	require.NoError(t, admin.SubResource("token").Create(t.Context(), of, token))
	return token.Status.Token
}

// AccountKubeconfig writes a kubeconfig for a ServiceAccount into a folder, with a token as its pod has it.
func AccountKubeconfig(t testing.TB, admin client.Client, config *rest.Config, folder, namespace, account string) (path string) {
	t.Helper()
	file := clientcmdapi.NewConfig()
	file.Clusters["c"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: AccountToken(t, admin, namespace, account, "")}
	file.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u", Namespace: namespace}
	file.CurrentContext = "x"
	path = filepath.Join(folder, namespace+"-"+account+".kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*file, path))
	return path
}
