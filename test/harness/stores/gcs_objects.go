package stores

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"

	"github.com/stretchr/testify/require"
)

func (s *GCS) call(method, path string, body []byte) []byte {
	s.t.Helper()
	request, err := http.NewRequest(method, s.Endpoint+path, bytes.NewReader(body))
	require.NoError(s.t, err)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(s.t, err)
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	require.NoError(s.t, err)
	require.Less(s.t, answer.StatusCode, 300, "%s %s: %s", method, path, text)
	return text
}

func gcsObject(bucket, key string) string {
	return "/storage/v1/b/" + bucket + "/o/" + url.PathEscape(key)
}

// Keys are the names of all objects in a bucket that begin with prefix.
func (s *GCS) Keys(bucket, prefix string) []string {
	s.t.Helper()
	var list struct{ Items []struct{ Name string } }
	text := s.call(http.MethodGet, "/storage/v1/b/"+bucket+"/o?prefix="+url.QueryEscape(prefix), nil)
	require.NoError(s.t, json.Unmarshal(text, &list))
	var keys []string
	for _, item := range list.Items {
		keys = append(keys, item.Name)
	}
	return keys
}

// Get returns the content of an object.
func (s *GCS) Get(bucket, key string) []byte {
	s.t.Helper()
	return s.call(http.MethodGet, gcsObject(bucket, key)+"?alt=media", nil)
}

// Put writes an object.
func (s *GCS) Put(bucket, key string, content []byte) {
	s.t.Helper()
	s.call(http.MethodPost, "/upload/storage/v1/b/"+bucket+"/o?uploadType=media&name="+url.QueryEscape(key), content)
}

// Remove removes an object.
func (s *GCS) Remove(bucket, key string) {
	s.t.Helper()
	s.call(http.MethodDelete, gcsObject(bucket, key), nil)
}
