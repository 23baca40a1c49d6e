package manager

import (
	"crypto/tls"
	"path/filepath"
	"time"
)

// certificateEnd returns what tells when the webhooks' certificate ends: that which the rotator serves or, in mode
// files, that in the directory, which the server loads again as it changes.
func (o *webhookOptions) certificateEnd(w webhooks) func() (time.Time, bool) {
	return func() (time.Time, bool) {
		if w.rotator != nil {
			serving, err := w.rotator.GetCertificate(nil)
			return endOf(serving, err)
		}
		pair, err := tls.LoadX509KeyPair(filepath.Join(o.certDir, "tls.crt"), filepath.Join(o.certDir, "tls.key"))
		return endOf(&pair, err)
	}
}

func endOf(pair *tls.Certificate, err error) (time.Time, bool) {
	if err != nil || pair.Leaf == nil {
		return time.Time{}, false
	}
	return pair.Leaf.NotAfter, true
}
