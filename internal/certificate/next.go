package certificate

import (
	"cmp"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The keys of the Secret with the next certificate and its key, while its authority is made known.
const (
	nextCertKey       = "next.crt"
	nextPrivateKeyKey = "next.key"
)

// dated is how long before it is made a certificate begins, for clocks that are behind.
const dated = time.Hour

// replacement is what to change in the data of the Secret, and why; nothing where the next certificate is still being made known.
func (r *Rotator) replacement(before map[string][]byte, why error, now time.Time) (map[string][]byte, error) {
	validity := cmp.Or(r.Validity, defaultValidity)
	next := map[string][]byte{
		corev1.TLSCertKey: before[nextCertKey], corev1.TLSPrivateKeyKey: before[nextPrivateKeyKey], caKey: before[caKey], tokenKey: before[tokenKey],
	}
	if due := (*dueError)(nil); r.Lead > 0 && errors.As(why, &due) {
		if len(before[nextCertKey]) == 0 {
			made, err := issue(r.Hosts, validity, before, now)
			if err != nil {
				return nil, err
			}
			return map[string][]byte{nextCertKey: made[corev1.TLSCertKey], nextPrivateKeyKey: made[corev1.TLSPrivateKeyKey], caKey: made[caKey]}, nil
		}
		if good, err := read(next, r.Hosts, now); err == nil && now.Before(good.serving.Leaf.NotBefore.Add(dated+r.Lead)) {
			return nil, nil
		}
	}
	// Also where the one before ended sooner: some clients know the next already.
	if _, err := read(next, r.Hosts, now); err != nil {
		made, err := issue(r.Hosts, validity, before, now)
		if err != nil {
			return nil, err
		}
		next = made
	}
	next[nextCertKey], next[nextPrivateKeyKey] = nil, nil
	return next, nil
}
