package accessreview_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/dcnlab/spot-training-operator/internal/accessreview"
)

// server answers reviews: the token ann-token is ann's, who may get /metrics, and bob-token bob's, who may not.
type server struct {
	config *rest.Config
	// audiences in the answers to token reviews.
	audiences []string
	// failures that come first.
	failures      int
	failure       int
	tokens, rules int
	asked         authorizationv1.SubjectAccessReviewSpec
}

func newServer(t *testing.T) *server {
	s := &server{}
	listening := httptest.NewServer(s)
	t.Cleanup(listening.Close)
	s.config = &rest.Config{Host: listening.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	return s
}

func (s *server) client(t *testing.T) kubernetes.Interface {
	client, err := kubernetes.NewForConfig(s.config)
	require.NoError(t, err)
	return client
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if s.failures > 0 {
		s.failures--
		w.WriteHeader(s.failure)
		return
	}
	if r.URL.Path == "/apis/authentication.k8s.io/v1/tokenreviews" {
		s.tokens++
		var review authenticationv1.TokenReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		name, ok := map[string]string{"ann-token": "ann", "bob-token": "bob"}[review.Spec.Token]
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: ok, Audiences: s.audiences, User: authenticationv1.UserInfo{
			Username: name, UID: "7", Groups: []string{"ml"}, Extra: map[string]authenticationv1.ExtraValue{"zone": {"a"}},
		}}
		if !ok {
			review.Status = authenticationv1.TokenReviewStatus{Error: "invalid bearer token"}
		}
		_ = json.NewEncoder(w).Encode(review)
		return
	}
	s.rules++
	var review authorizationv1.SubjectAccessReview
	_ = json.NewDecoder(r.Body).Decode(&review)
	s.asked = review.Spec
	review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: review.Spec.User == "ann", Reason: "RBAC"}
	_ = json.NewEncoder(w).Encode(review)
}

func TestATokenIsForItsAudience(t *testing.T) {
	s := newServer(t)
	for name, test := range map[string]struct {
		token, audience string
		answered        []string
		ok              bool
	}{
		"the API server's":            {token: "ann-token", ok: true},
		"for the audience":            {"ann-token", "job-service", []string{"job-service"}, true},
		"for another":                 {"ann-token", "job-service", []string{"vault"}, false},
		"audiences are not checked":   {"ann-token", "job-service", nil, false},
		"not valid":                   {token: "x"},
		"not valid, for the audience": {"x", "job-service", []string{"job-service"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s.audiences = test.answered
			user, ok, err := accessreview.Token(t.Context(), s.client(t), test.token, test.audience)
			require.NoError(t, err)
			assert.Equal(t, test.ok, ok)
			if ok {
				assert.Equal(t, authenticationv1.UserInfo{Username: "ann", UID: "7", Groups: []string{"ml"}, Extra: map[string]authenticationv1.ExtraValue{"zone": {"a"}}}, user)
			}
		})
	}
}

func TestTransientErrorsAreRetried(t *testing.T) {
	s := newServer(t)
	s.failures, s.failure = 2, http.StatusInternalServerError
	allowed, reason, err := accessreview.Access(t.Context(), s.client(t), authenticationv1.UserInfo{Username: "ann", Extra: map[string]authenticationv1.ExtraValue{"zone": {"a"}}},
		authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list"}})
	require.NoError(t, err)
	assert.True(t, allowed)
	assert.Equal(t, "RBAC", reason)
	assert.Equal(t, authorizationv1.ExtraValue{"a"}, s.asked.Extra["zone"])

	s.failures, s.failure = 1, http.StatusForbidden
	_, _, err = accessreview.Access(t.Context(), s.client(t), authenticationv1.UserInfo{Username: "ann"}, authorizationv1.SubjectAccessReviewSpec{})
	assert.Error(t, err, "what is not transient is not retried")
}

func TestMetricsNeedATokenThatMay(t *testing.T) {
	s := newServer(t)
	filter, err := accessreview.MetricsFilter(s.config, http.DefaultClient)
	require.NoError(t, err)
	handler, err := filter(testr.New(t), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	require.NoError(t, err)
	get := func(authorization string) int {
		request := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
		request.Header.Set("Authorization", authorization)
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		return recorder.Code
	}
	for range 3 {
		assert.Equal(t, http.StatusOK, get("Bearer ann-token"))
		assert.Equal(t, http.StatusForbidden, get("Bearer bob-token"))
		assert.Equal(t, http.StatusUnauthorized, get("Bearer x"))
		assert.Equal(t, http.StatusUnauthorized, get("Basic ann-token"))
		assert.Equal(t, http.StatusUnauthorized, get(""))
	}
	assert.Equal(t, 3, s.tokens, "answers are cached")
	assert.Equal(t, 2, s.rules)
	assert.Equal(t, authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}, *s.asked.NonResourceAttributes)

	s.failures, s.failure = 1, http.StatusForbidden
	assert.Equal(t, http.StatusInternalServerError, get("Bearer other"))
	assert.Equal(t, http.StatusUnauthorized, get("Bearer other"), "failures are not cached")
}

// Made-up tokens, and tokens without the right, do not take the API server away from who reads the metrics.
func TestAFloodOfTokensIsNotReviewed(t *testing.T) {
	s := newServer(t)
	now := time.Date(2026, 3, 1, 12, 0, 7, 0, time.UTC)
	filter, err := accessreview.MetricsFilterAt(s.config, http.DefaultClient, func() time.Time { return now })
	require.NoError(t, err)
	handler, err := filter(testr.New(t), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	require.NoError(t, err)
	get := func(from, method, token string) int {
		request := httptest.NewRequest(method, "/metrics", http.NoBody)
		request.RemoteAddr = from
		request.Header.Set("Authorization", "Bearer "+token)
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		return recorder.Code
	}
	const here, there = "10.0.0.1:4711", "10.0.0.2:4711"
	flood := func(from func(int) string) {
		reviewed := s.tokens
		answers := map[int]int{}
		for i := range 100 {
			answers[get(from(i), "GET", fmt.Sprint("made up ", i))]++
			answers[get(from(i), fmt.Sprint("GET", i), "bob-token")]++
		}
		assert.Equal(t, map[int]int{http.StatusUnauthorized: 15, http.StatusForbidden: 15, http.StatusTooManyRequests: 170}, answers)
		assert.Equal(t, reviewed+30, s.tokens)
	}
	require.Equal(t, http.StatusOK, get(here, "GET", "ann-token"))
	now = now.Add(2 * time.Minute)
	flood(func(int) string { return here })
	assert.Equal(t, http.StatusOK, get(here, "GET", "ann-token"), "it was good, and is reviewed again")
	assert.Equal(t, http.StatusUnauthorized, get(there, "GET", "x"), "another address")
	now = now.Add(time.Minute)
	flood(func(i int) string { return fmt.Sprintf("[2001:db8::%x]:4711", i) })
	now = now.Add(time.Minute)
	for range 100 {
		s.failures, s.failure = 1, http.StatusForbidden
		require.Equal(t, http.StatusInternalServerError, get(there, "GET", "other"))
	}
	assert.Equal(t, http.StatusUnauthorized, get(there, "GET", "other"), "what the API server did not answer is not counted")
}
