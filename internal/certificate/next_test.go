package certificate

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certutil "k8s.io/client-go/util/cert"
)

// A certificate whose authority is not known yet is not served, as long as the one before is good.
func TestTheNextCertificateWaitsUntilItsAuthorityIsKnown(t *testing.T) {
	const day = 24 * time.Hour
	r := &Rotator{Hosts: hosts, Validity: 365 * day, Lead: 30 * day}
	start := time.Now()
	replace := func(data map[string][]byte, now time.Time) map[string][]byte {
		t.Helper()
		_, why := read(data, hosts, now)
		require.Error(t, why)
		changes, err := r.replacement(data, why, now)
		require.NoError(t, err)
		data = maps.Clone(data)
		maps.Copy(data, changes)
		maps.DeleteFunc(data, func(_ string, value []byte) bool { return len(value) == 0 })
		return data
	}
	first := replace(map[string][]byte{}, start)
	assert.NotContains(t, first, nextCertKey)
	assert.NotEmpty(t, first["tls.crt"])

	// What is issued begins at the real time.
	due := first
	r.Validity = 700 * day
	staged := replace(due, start.Add(250*day))
	assert.Equal(t, first["tls.crt"], staged["tls.crt"])
	require.NotEmpty(t, staged[nextCertKey])
	for _, serving := range []string{"tls", "next"} {
		_, err := read(map[string][]byte{
			"tls.crt": staged[serving+".crt"], "tls.key": staged[serving+".key"], "ca.crt": staged["ca.crt"], tokenKey: staged[tokenKey],
		}, hosts, start)
		require.NoError(t, err, "clients trust both")
	}

	r.Lead = 251 * day
	assert.Equal(t, staged, replace(staged, start.Add(250*day)), "it waits")
	served := replace(staged, start.Add(252*day))
	assert.Equal(t, staged[nextCertKey], served["tls.crt"])
	assert.Equal(t, staged[nextPrivateKeyKey], served["tls.key"])
	assert.Equal(t, staged["ca.crt"], served["ca.crt"])
	assert.NotContains(t, served, nextCertKey)
	_, err := read(served, hosts, start.Add(252*day))
	require.NoError(t, err)

	broken := maps.Clone(staged)
	broken["tls.crt"] = []byte("spoilt")
	assert.Equal(t, staged[nextCertKey], replace(broken, start)["tls.crt"], "some clients know the next one, and none is good before it")
	broken[nextCertKey] = []byte("spoilt")
	assert.NotEqual(t, []byte("spoilt"), replace(broken, start)["tls.crt"])
}

// The names may change while the next certificate waits: servers still have the one before it.
func TestWhatIsServedStaysTrustedWhenTheNextCertificateIsNotGood(t *testing.T) {
	const day = 24 * time.Hour
	r := &Rotator{Hosts: hosts, Validity: 365 * day, Lead: 30 * day}
	replace := func(data map[string][]byte, now time.Time) map[string][]byte {
		t.Helper()
		_, why := read(data, r.Hosts, now)
		require.Error(t, why)
		changes, err := r.replacement(data, why, now)
		require.NoError(t, err)
		data = maps.Clone(data)
		maps.Copy(data, changes)
		return data
	}
	now := time.Now()
	served := replace(map[string][]byte{}, now)
	r.Validity = 700 * day // what is issued begins at the real time
	staged := replace(served, now.Add(250*day))
	require.NotEmpty(t, staged[nextCertKey])

	r.Hosts = append([]string{"another"}, hosts...)
	changed := replace(staged, now.Add(251*day))
	assert.NotEqual(t, served["tls.crt"], changed["tls.crt"])
	assert.Empty(t, changed[nextCertKey])
	for name, one := range map[string]map[string][]byte{"the new one": changed, "the one before": served} {
		_, err := read(map[string][]byte{
			"tls.crt": one["tls.crt"], "tls.key": one["tls.key"], "ca.crt": changed["ca.crt"], tokenKey: changed[tokenKey],
		}, hosts, now)
		assert.NoError(t, err, "clients trust %s", name)
	}
	r.Hosts = append([]string{"yet.another"}, hosts...)
	authorities, err := certutil.ParseCertsPEM(replace(changed, now)["ca.crt"])
	require.NoError(t, err)
	assert.Len(t, authorities, 2, "they do not gather")
}

func TestOnlyCertificatesArePublished(t *testing.T) {
	data := issued(t, time.Hour, nil)
	bundle, err := authorities(append(data["tls.key"], data["ca.crt"]...))
	require.NoError(t, err)
	assert.Equal(t, string(data["ca.crt"]), bundle, "a key beside them is left out")
	_, err = authorities([]byte("x"))
	require.Error(t, err)
	bundle, err = authorities(nil)
	require.NoError(t, err)
	assert.Empty(t, bundle)
}
