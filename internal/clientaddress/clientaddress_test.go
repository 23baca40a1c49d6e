package clientaddress

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAClientIsCountedByItsAddressOrNetwork(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.7:4711": "10.0.0.7", "10.0.0.7": "10.0.0.7", "[::ffff:10.0.0.7]:4711": "10.0.0.7",
		"[2001:db8::1:2]:4711": "2001:db8::/64", "[fe80::1%eth0]:4711": "fe80::/64", "2001:db8::9": "2001:db8::/64",
	} {
		address, ok := Parse(text)
		assert.True(t, ok, text)
		assert.Equal(t, want, Of(address), text)
	}
	for _, text := range []string{"", "@", "unix", "10.0.0.7.8:1"} {
		_, ok := Parse(text)
		assert.False(t, ok, text)
	}
}
