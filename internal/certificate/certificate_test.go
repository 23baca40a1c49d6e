package certificate

import (
	"crypto/x509"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"
)

var hosts = []string{"webhook", "webhook.ns.svc", "127.0.0.1"}

func issued(t *testing.T, validity time.Duration, before map[string][]byte) map[string][]byte {
	t.Helper()
	data, err := issue(hosts, validity, before, time.Now())
	require.NoError(t, err)
	return data
}

func TestACertificateIsGoodForItsHostsAndTime(t *testing.T) {
	now := time.Now()
	data := issued(t, 30*time.Hour, nil)
	good, err := read(data, hosts, now)
	require.NoError(t, err)
	assert.Equal(t, data["ca.crt"], good.caBundle)
	assert.NotContains(t, string(data["ca.crt"]), "PRIVATE KEY")

	for name, test := range map[string]struct {
		change func(map[string][]byte)
		hosts  []string
		now    time.Time
		why    string
	}{
		"no certificate":            {func(d map[string][]byte) { clear(d) }, hosts, now, "it has no certificate yet"},
		"a certificate of no sense": {func(d map[string][]byte) { d["tls.crt"] = []byte("x") }, hosts, now, "its certificate cannot be read"},
		"another's key":             {func(d map[string][]byte) { d["tls.key"] = issued(t, time.Hour, nil)["tls.key"] }, hosts, now, "its certificate cannot be read"},
		"another's authority":       {func(d map[string][]byte) { d["ca.crt"] = issued(t, time.Hour, nil)["ca.crt"] }, hosts, now, "its certificate is not good for webhook"},
		"authorities of no sense":   {func(d map[string][]byte) { d["ca.crt"] = []byte("x") }, hosts, now, "its authorities cannot be read"},
		"a new name":                {nil, []string{"webhook", "other.ns.svc"}, now, "its certificate is not good for other.ns.svc"},
		"two thirds of its time":    {nil, hosts, now.Add(19*time.Hour + time.Minute), "its certificate is to be renewed"},
		"its whole time":            {nil, hosts, now.Add(40 * time.Hour), "its certificate is not good for webhook"},
	} {
		t.Run(name, func(t *testing.T) {
			changed := map[string][]byte{}
			for key, value := range data {
				changed[key] = value
			}
			if test.change != nil {
				test.change(changed)
			}
			_, err := read(changed, test.hosts, test.now)
			require.ErrorContains(t, err, test.why)
		})
	}
	_, err = read(data, hosts, now.Add(18*time.Hour))
	require.NoError(t, err, "it is not yet due")
}

// What another replica still serves stays trusted through a renewal, but not forever.
func TestTheAuthorityBeforeStaysTrusted(t *testing.T) {
	first := issued(t, 30*time.Hour, nil)
	second := issued(t, 30*time.Hour, first)
	third := issued(t, 30*time.Hour, second)
	trusts := func(bundle, serving map[string][]byte) bool {
		pool := x509.NewCertPool()
		require.True(t, pool.AppendCertsFromPEM(bundle["ca.crt"]))
		certificates, err := certutil.ParseCertsPEM(serving["tls.crt"])
		require.NoError(t, err)
		_, err = certificates[0].Verify(x509.VerifyOptions{DNSName: "webhook.ns.svc", Roots: pool})
		return err == nil
	}
	assert.True(t, trusts(second, first))
	assert.True(t, trusts(second, second))
	assert.False(t, trusts(first, second))
	assert.True(t, trusts(third, second))
	assert.False(t, trusts(third, first))
	late, err := issue(hosts, 30*time.Hour, first, time.Now().Add(31*time.Hour))
	require.NoError(t, err)
	assert.False(t, trusts(late, first), "an authority whose time is over is dropped")
}

func TestInjection(t *testing.T) {
	with := func(name, bundle string) called {
		return called{name, admissionregistrationv1.WebhookClientConfig{CABundle: []byte(bundle)}}
	}
	good, paths := &pair{caBundle: []byte("ca"), token: "t0k"}, map[string]string{"a": "/validate"}
	assert.Nil(t, injection(nil, good, paths))
	assert.Nil(t, injection([]called{with("a", "ca"), with("b", "ca")}, good, paths))
	patch := injection([]called{with("a", "ca"), with("b", "old")}, good, paths)
	require.Len(t, patch, 2)
	assert.JSONEq(t, `{"op":"test","path":"/webhooks/1/name","value":"b"}`, patch[0].Json())
	assert.JSONEq(t, `{"op":"add","path":"/webhooks/1/clientConfig/caBundle","value":"Y2E="}`, patch[1].Json())
}

func TestOnlyTheAPIServerIsToldTheToken(t *testing.T) {
	good, paths := &pair{caBundle: []byte("ca"), token: "t0k"}, map[string]string{"a": "/validate"}
	byService := func(path *string) called {
		return called{"a", admissionregistrationv1.WebhookClientConfig{
			CABundle: []byte("ca"), Service: &admissionregistrationv1.ServiceReference{Path: path},
		}}
	}
	byURL := func(url string) called {
		return called{"a", admissionregistrationv1.WebhookClientConfig{CABundle: []byte("ca"), URL: &url}}
	}
	for name, c := range map[string]struct {
		webhook called
		want    string // the second operation, after the test of the name; empty for no patch
	}{
		"without a path":        {byService(nil), `{"op":"add","path":"/webhooks/0/clientConfig/service/path","value":"/validate/t0k"}`},
		"without the token":     {byService(ptr.To("/validate")), `{"op":"add","path":"/webhooks/0/clientConfig/service/path","value":"/validate/t0k"}`},
		"with a former token":   {byService(ptr.To("/validate/old")), `{"op":"add","path":"/webhooks/0/clientConfig/service/path","value":"/validate/t0k"}`},
		"with the token":        {byService(ptr.To("/validate/t0k")), ""},
		"URL without the token": {byURL("https://127.0.0.1:1/validate"), `{"op":"add","path":"/webhooks/0/clientConfig/url","value":"https://127.0.0.1:1/validate/t0k"}`},
		"URL with the token":    {byURL("https://127.0.0.1:1/validate/t0k"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			patch := injection([]called{c.webhook}, good, paths)
			if c.want == "" {
				assert.Empty(t, patch)
				return
			}
			require.Len(t, patch, 2)
			assert.JSONEq(t, c.want, patch[1].Json())
		})
	}
	r := &Rotator{}
	knows := func(path string) bool { return r.KnowsToken(httptest.NewRequest("POST", path, nil)) }
	assert.False(t, knows("/validate/"), "there is no token yet")
	r.current.Store(good)
	assert.True(t, knows("/validate/t0k"))
	for _, path := range []string{"/", "/validate", "/validate/", "/validate/t0", "/validate/t0k/x"} {
		assert.False(t, knows(path), path)
	}
}

func TestTheTokenStaysAsLongAsTheSecret(t *testing.T) {
	first := issued(t, time.Hour, nil)
	assert.Empty(t, validation.IsDNS1123Subdomain(string(first[tokenKey])), "the API server takes no other part of a Service's path")
	assert.NotEqual(t, first[tokenKey], issued(t, time.Hour, nil)[tokenKey])
	assert.Equal(t, first[tokenKey], issued(t, time.Hour, first)[tokenKey])
	delete(first, tokenKey)
	_, err := read(first, hosts, time.Now())
	require.ErrorContains(t, err, "it has no token for the paths yet", "a Secret of an earlier version gets one")
}
