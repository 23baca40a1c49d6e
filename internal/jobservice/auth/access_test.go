package auth_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/auth"
)

// roles allow what they list, as "user verb resource namespace/name".
type roles struct {
	allowed map[string]bool
	asked   int
	err     error
}

func (r *roles) Allowed(_ context.Context, user auth.User, a auth.Attributes) (bool, string, error) {
	r.asked++
	return r.allowed[fmt.Sprintf("%s %s %s %s/%s", user.Username, a.Verb, a.Resource, a.Namespace, a.Name)], "no Role", r.err
}

func identity(t *testing.T, change ...func(jwt.MapClaims)) *auth.Identity {
	t.Helper()
	found, err := newAuthenticator(t, options()).Authenticate(t.Context(), sign(t, jwt.SigningMethodHS256, secret, "", claims(change...)))
	require.NoError(t, err)
	return found
}

func TestClaimsAndRolesBothDecide(t *testing.T) {
	create := func(namespace string) auth.Attributes {
		return auth.Attributes{Verb: "create", Resource: auth.Jobs, Namespace: namespace}
	}
	alice := identity(t, with("namespaces", []string{"team-a", "team-b"}))
	clock := now
	r := &roles{allowed: map[string]bool{"alice create aijobs team-a/": true, "alice create aijobs team-c/": true}}
	access := auth.NewAccess(r, func() time.Time { return clock })
	var forbidden *auth.Forbidden

	for range 5 {
		require.NoError(t, access.Check(t.Context(), alice, create("team-a")))
		require.ErrorAs(t, access.Check(t.Context(), alice, create("team-b")), &forbidden)
		assert.Equal(t, `user "alice" may not create aijobs.aiplatform.example.com in namespace "team-b": no Role: ask for a Role that allows it`, forbidden.Reason)
		require.ErrorAs(t, access.Check(t.Context(), alice, create("team-c")), &forbidden)
		assert.Contains(t, forbidden.Reason, `does not cover namespace "team-c", only team-a, team-b`)
	}
	assert.Equal(t, 2, r.asked, "decisions are remembered, and what the claims forbid is not asked")

	r.allowed["alice create aijobs team-b/"] = true
	clock = clock.Add(6 * time.Second)
	require.NoError(t, access.Check(t.Context(), alice, create("team-b")), "a new Role is seen after seconds")
	r.err = errors.New("connection refused")
	clock = clock.Add(6 * time.Second)
	require.ErrorIs(t, access.Check(t.Context(), alice, create("team-a")), auth.ErrUnavailable)

	require.NoError(t, auth.NewAccess(nil, time.Now).Check(t.Context(), alice, create("team-b")), "without a cluster the claims decide")
}

// recorder keeps what it is asked, and allows it.
type recorder struct{ asked []auth.Attributes }

func (r *recorder) Allowed(_ context.Context, _ auth.User, a auth.Attributes) (bool, string, error) {
	r.asked = append(r.asked, a)
	return true, "", nil
}

func TestEachResourceHasItsGroup(t *testing.T) {
	r := &recorder{}
	access := auth.NewAccess(r, func() time.Time { return now })
	logs := auth.Attributes{Verb: "get", Resource: auth.Pods, Subresource: "log", Namespace: "team-a"}
	require.NoError(t, access.Check(t.Context(), identity(t), logs))
	require.NoError(t, access.Check(t.Context(), identity(t), auth.Attributes{Verb: "get", Resource: auth.Jobs, Namespace: "team-a"}))
	assert.Equal(t, []auth.Attributes{logs, {Verb: "get", Resource: auth.Jobs, Namespace: "team-a", Group: "aiplatform.example.com"}}, r.asked)
	logs.Namespace = "team-b"
	var forbidden *auth.Forbidden
	require.ErrorAs(t, access.Check(t.Context(), identity(t), logs), &forbidden, "the claims do not cover it")
}

func TestAUserIsAskedAboutWithoutAToken(t *testing.T) {
	create := auth.Attributes{Verb: "create", Resource: auth.Jobs, Namespace: "team-a"}
	r := &roles{allowed: map[string]bool{"alice create aijobs team-a/": true}}
	access := auth.NewAccess(r, func() time.Time { return now })
	var forbidden *auth.Forbidden
	for range 3 {
		require.NoError(t, access.CheckUser(t.Context(), auth.User{Username: "alice", Groups: []string{"a", "b"}}, create))
		require.ErrorAs(t, access.CheckUser(t.Context(), auth.User{Username: "bob"}, create), &forbidden)
	}
	assert.Equal(t, 2, r.asked)
	require.NoError(t, access.CheckUser(t.Context(), auth.User{Username: "alice", Groups: []string{"a"}}, create))
	assert.Equal(t, 3, r.asked, "another user, as other groups may have other rights")
}

func TestWorkersOfQueues(t *testing.T) {
	work := func(queue string) auth.Attributes {
		return auth.Attributes{Verb: "work", Resource: auth.Queues, Name: queue}
	}
	access := auth.NewAccess(nil, time.Now)
	require.NoError(t, access.Check(t.Context(), identity(t), work("any")))
	some := identity(t, with("queues", []string{"inference"}))
	require.NoError(t, access.Check(t.Context(), some, work("inference")))
	var forbidden *auth.Forbidden
	require.ErrorAs(t, access.Check(t.Context(), some, work("training")), &forbidden)
	assert.Contains(t, forbidden.Reason, `queue "training"`)
}

func TestReadableNamespaces(t *testing.T) {
	for _, test := range []struct {
		name    string
		claims  []func(jwt.MapClaims)
		allowed []string
		asked   string
		want    []string
		refused string
	}{
		{name: "those of the claims", claims: []func(jwt.MapClaims){with("namespaces", []string{"a", "b"})},
			allowed: []string{"a/", "b/", "c/"}, want: []string{"a", "b"}},
		{name: "those of the claims that roles allow", claims: []func(jwt.MapClaims){with("namespaces", []string{"a", "b"})},
			allowed: []string{"b/"}, want: []string{"b"}},
		{name: "none that roles allow", claims: []func(jwt.MapClaims){with("namespaces", []string{"a", "b"})}, refused: "may not list"},
		{name: "one by name", allowed: []string{"team-a/"}, asked: "team-a", want: []string{"team-a"}},
		{name: "one by name that the claims lack", allowed: []string{"b/"}, asked: "b", refused: "does not cover"},
		{name: "all", claims: []func(jwt.MapClaims){with("namespaces", "*")}, allowed: []string{"/"}, want: nil},
		{name: "all, when roles allow the default one", claims: []func(jwt.MapClaims){with("namespaces", "*")},
			allowed: []string{"default/"}, want: []string{"default"}},
		{name: "all, when roles allow none", claims: []func(jwt.MapClaims){with("namespaces", "*")}, refused: "may not list"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := &roles{allowed: map[string]bool{}}
			for _, where := range test.allowed {
				r.allowed["alice list aijobs "+where] = true
			}
			got, err := auth.NewAccess(r, func() time.Time { return now }).Readable(t.Context(), identity(t, test.claims...), test.asked)
			if test.refused != "" {
				var forbidden *auth.Forbidden
				require.ErrorAs(t, err, &forbidden)
				assert.Contains(t, forbidden.Reason, test.refused)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.want, got)
		})
	}
}
