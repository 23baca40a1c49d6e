package olm

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func v1TestValues() values {
	return values{
		Namespace: v1Namespace, CatalogdImage: "localhost/localcluster/catalogd@sha256:a", ControllerImage: "localhost/localcluster/operator-controller@sha256:b",
		CA: "authority\n", RegistriesConf: "[[registry]]\nlocation = \"10.77.0.1:5000\"\n", Policy: "{}\n",
		Servers: []server{{Name: "catalogd", Certificate: "c\n", Key: "k\n"}, {Name: "operator-controller", Certificate: "c\n", Key: "k\n"}},
	}
}

func TestManifests(t *testing.T) {
	install, webhook := objects(t, v1, "install.yaml", v1TestValues()), objects(t, v1, "webhook.yaml", v1TestValues())
	for _, program := range []string{"catalogd", "operator-controller"} {
		for _, want := range []string{
			"Deployment/" + program + "-controller-manager", "ServiceAccount/" + program + "-controller-manager",
			"Service/" + program + "-service", "Secret/" + program + "-cert", "ClusterRole/" + program + "-manager-role",
		} {
			if install[want] == nil {
				t.Errorf("no %s", want)
			}
		}
		deployment := install["Deployment/"+program+"-controller-manager"]
		containers, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
		if image := containers[0].(map[string]any)["image"]; !strings.HasPrefix(image.(string), "localhost/localcluster/"+program+"@") {
			t.Errorf("%s runs the image %v", program, image)
		}
	}
	if conf, _, _ := unstructured.NestedString(install["ConfigMap/registries"].Object, "data", "registries.conf"); conf != v1TestValues().RegistriesConf {
		t.Errorf("registries.conf became %q", conf)
	}
	hooks, _, _ := unstructured.NestedSlice(webhook["MutatingWebhookConfiguration/catalogd-mutating-webhook-configuration"].Object, "webhooks")
	if len(hooks) != 1 {
		t.Fatalf("%d webhooks", len(hooks))
	}
	if bundle, _, _ := unstructured.NestedString(hooks[0].(map[string]any), "clientConfig", "caBundle"); bundle != "YXV0aG9yaXR5Cg==" {
		t.Errorf("the webhook trusts %q", bundle)
	}
}

func TestCertificatesAreKeptAndGoodForTheServices(t *testing.T) {
	dir := t.TempDir()
	ca, servers, err := certificates(dir)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(ca)) {
		t.Fatal("the authority is not a certificate")
	}
	for _, s := range servers {
		if _, err := tls.X509KeyPair([]byte(s.Certificate), []byte(s.Key)); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		block, _ := pem.Decode([]byte(s.Certificate))
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := certificate.Verify(x509.VerifyOptions{Roots: roots, DNSName: s.Name + "-service.olmv1-system.svc"}); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
	}
	againCA, again, err := certificates(dir)
	if err != nil || againCA != ca || !reflect.DeepEqual(again, servers) {
		t.Errorf("other certificates the second time, error %v", err)
	}
}
