// Package etcd reads what an API server under test has stored, as it lies in its etcd. It speaks to etcd's JSON gateway, so
// that the tests need no client of etcd.
package etcd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Server is an etcd without authentication, as envtest starts it.
type Server struct {
	// URL of the server, for example http://127.0.0.1:2379.
	URL string
}

// Object is an object as it is stored.
type Object struct {
	// APIVersion in which it is stored, for example ml.example.com/v1.
	APIVersion string
	// Writes is how often it was written since it was created, that included.
	Writes int64
}

// Objects returns the stored custom resources of a group and resource, by namespace/name.
func (s Server) Objects(ctx context.Context, group, resource string) (map[string]Object, error) {
	prefix := []byte("/registry/" + group + "/" + resource + "/")
	end := bytes.Clone(prefix)
	end[len(end)-1]++ // the first key behind those with the prefix
	var answer struct {
		KVs []struct {
			Key, Value []byte // the gateway's base64 is also that of Go
			Version    string
		}
	}
	err := s.post(ctx, "/v3/kv/range", map[string][]byte{"key": prefix, "range_end": end}, &answer)
	if err != nil {
		return nil, err
	}
	objects := map[string]Object{}
	for _, kv := range answer.KVs {
		var content metav1.TypeMeta
		if err := json.Unmarshal(kv.Value, &content); err != nil {
			return nil, fmt.Errorf("read the object at %s: %w", kv.Key, err)
		}
		writes, err := strconv.ParseInt(kv.Version, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read the number of writes of %s: %w", kv.Key, err)
		}
		objects[strings.TrimPrefix(string(kv.Key), string(prefix))] = Object{APIVersion: content.APIVersion, Writes: writes}
	}
	return objects, nil
}

// Compact forgets all that is not the present state, so that lists that were begun before expire.
func (s Server) Compact(ctx context.Context) error {
	var now struct {
		Header struct{ Revision string }
	}
	if err := s.post(ctx, "/v3/kv/range", map[string][]byte{"key": []byte("/")}, &now); err != nil {
		return err
	}
	return s.post(ctx, "/v3/kv/compaction", map[string]any{"revision": now.Header.Revision, "physical": true}, &now)
}

func (s Server) post(ctx context.Context, path string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		return fmt.Errorf("etcd answers %s to %s: %s", response.Status, path, text)
	}
	return json.NewDecoder(response.Body).Decode(answer)
}
