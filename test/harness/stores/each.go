package stores

import "testing"

// Store is a real object store of any kind. Methods that take a bucket work on the server's own data, past what is tested.
type Store interface {
	// URL is that of a store in a bucket, URLVia the same by way of another endpoint. Secret is what gives access to it.
	URL(bucket, prefix string) string
	URLVia(endpoint, bucket, prefix string) string
	Secret() map[string]string
	MakeBucket(bucket string)
	RemoveBucket(bucket string)
	Keys(bucket, prefix string) []string
	Get(bucket, key string) []byte
	Put(bucket, key string, content []byte)
	Remove(bucket, key string)
	Start()
	Stop()
}

// OnEach runs a test with each kind of object store, beside each other.
func OnEach(t *testing.T, test func(t *testing.T, s Store)) {
	for name, start := range map[string]func(t *testing.T) Store{
		"S3":    func(t *testing.T) Store { return NewS3(t, AnyPort) },
		"GCS":   func(t *testing.T) Store { return NewGCS(t, AnyPort) },
		"Azure": func(t *testing.T) Store { return NewAzure(t, AnyPort) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, start(t))
		})
	}
}
