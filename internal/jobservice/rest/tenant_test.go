package rest_test

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/rest"
)

// A tenant gets the same answers about a job of another, whatever state it is in, as about one that does not exist, on every path of the document.
func TestATenantLearnsNothingOfTheJobsOfAnother(t *testing.T) {
	inTeamB := map[string]bool{}
	for _, what := range []string{"create aijobs", "get aijobs", "list aijobs", "delete aijobs", "get pods/log", "get agentworkflows"} {
		inTeamB["eve "+what+" team-b/"] = true
	}
	for name, change := range map[string]func(*rest.Options){
		"by the claims of its token": func(*rest.Options) {},
		"by its roles in Kubernetes": func(o *rest.Options) { o.Authorizer = &rights{allowed: inTeamB} },
	} {
		t.Run(name, func(t *testing.T) {
			store := newMemory()
			a := newService(t, store, func(o *rest.Options) { o.Kubernetes = &cluster{} })
			names := prepare(t, a)
			b := newService(t, store, func(o *rest.Options) { o.Kubernetes = &cluster{} }, change)
			foreign := []string{"ID", "POD", "CANCELLED", "SUCCEEDED", "DEAD", "STOPPED", "RUNNING", "TASK"}
			tried := 0
			for path, item := range document().Paths.Map() {
				for method := range item.Operations() {
					body := ""
					if strings.HasPrefix(path, "/tasks/") {
						body = `{"lease_token":1}`
					}
					ask := func(id string) answer {
						path := strings.NewReplacer("{id}", id, "{namespace}", "team-a", "{name}", id).Replace("/api/v1" + path)
						got := b.send(t, method, path, tenant, body, "X-Request-Id", "the-request")
						got.header.Del("Date")
						return got
					}
					switch {
					case strings.Contains(path, "{id}"):
						want := ask(unknownID)
						require.Equal(t, http.StatusNotFound, want.status, "%s %s: %s", method, path, want.body)
						for _, job := range foreign {
							id := strings.TrimPrefix(names.Replace("/jobs/"+job), "/jobs/")
							assert.Equal(t, want, ask(id), "%s %s of %s", method, path, job)
						}
						tried++
					case strings.Contains(path, "{namespace}"):
						want := ask("none")
						require.Equal(t, http.StatusNotFound, want.status)
						assert.Equal(t, want, ask("w"), "%s %s", method, path)
						tried++
					}
				}
			}
			assert.Equal(t, 8, tried, "methods of paths that name a job or a workflow")
		})
	}
}

// To know how a job stands is not to read what its pods print.
func TestLogsOfPodsNeedTheRightToReadThem(t *testing.T) {
	r := &rights{allowed: map[string]bool{"alice create aijobs team-a/": true, "alice get aijobs team-a/": true}}
	s := newService(t, newMemory(), func(o *rest.Options) { o.Authorizer, o.Kubernetes = r, &cluster{} })
	pod := s.submit(t, all, `{"job_type":"inference","image":"registry.example.com/m:v1"}`)
	pooled := s.submit(t, all, `{"job_type":"inference"}`)
	for _, query := range []string{"", "?follow=true"} {
		a := s.send(t, "GET", "/api/v1/jobs/"+pod+"/logs"+query, all, "")
		assert.Equal(t, http.StatusForbidden, a.status)
		assert.Contains(t, string(a.body), `user \"alice\" may not get pods/log in namespace \"team-a\": ask for a Role that allows it`)
	}
	assert.Equal(t, http.StatusOK, s.send(t, "GET", "/api/v1/jobs/"+pooled+"/logs", all, "").status, "it has no pods")
	r.allowed["bob get pods/log team-a/"] = true
	assert.Equal(t, http.StatusNotFound, s.send(t, "GET", "/api/v1/jobs/"+pod+"/logs", other, "").status, "nor does the one right give the other")

	may := newService(t, s.store, func(o *rest.Options) { o.Authorizer, o.Kubernetes = r, &cluster{} })
	r.allowed["alice get pods/log team-a/"] = true
	a := may.send(t, "GET", "/api/v1/jobs/"+pod+"/logs", all, "")
	assert.Equal(t, http.StatusOK, a.status)
	assert.Contains(t, string(a.body), "first line of "+pod)
}

// Behind an ingress, who tries tokens does not keep others from theirs, and a header that a client sends itself gives it no other count.
func TestUnknownTokensAreCountedByTheClientOfAProxy(t *testing.T) {
	_, loopback, err := net.ParseCIDR("127.0.0.0/8")
	require.NoError(t, err)
	for name, test := range map[string]struct {
		trusted []net.IPNet
		from    []string
		want    []int
	}{
		"two clients":                          {[]net.IPNet{*loopback}, []string{"203.0.113.1", "203.0.113.1", "203.0.113.1", "203.0.113.2"}, []int{401, 401, 429, 401}},
		"a client that adds addresses":         {[]net.IPNet{*loopback}, []string{"203.0.113.1", "1.1.1.1, 203.0.113.1", "2.2.2.2, 203.0.113.1"}, []int{401, 401, 429}},
		"two proxies":                          {[]net.IPNet{*loopback}, []string{"203.0.113.1, 127.0.0.9", "203.0.113.1,127.0.0.8", "203.0.113.1", "203.0.113.2, 127.0.0.9"}, []int{401, 401, 429, 401}},
		"the addresses of one IPv6 network":    {[]net.IPNet{*loopback}, []string{"2001:db8::1", "[2001:db8::2]:4711", "2001:db8::3", "2001:db8:1::1"}, []int{401, 401, 429, 401}},
		"nonsense is the proxy's":              {[]net.IPNet{*loopback}, []string{"x", "", "unknown", "203.0.113.1"}, []int{401, 401, 429, 401}},
		"a proxy that is not trusted is one":   {nil, []string{"203.0.113.1", "203.0.113.2", "203.0.113.3"}, []int{401, 401, 429}},
		"another network is none of a proxy's": {[]net.IPNet{{IP: net.IPv4(10, 0, 0, 0), Mask: net.CIDRMask(8, 32)}}, []string{"1.1.1.1", "2.2.2.2", "3.3.3.3"}, []int{401, 401, 429}},
	} {
		t.Run(name, func(t *testing.T) {
			now := &clock{}
			s := newService(t, newMemory(), func(o *rest.Options) {
				o.Limits, o.TrustedProxies, o.Now = rest.Limits{Other: 2}, test.trusted, now.Now
			})
			var got []int
			for _, from := range test.from {
				got = append(got, s.send(t, "GET", "/api/v1/jobs/", noToken, "", "Authorization", "Bearer a.b.c", "X-Forwarded-For", from).status)
			}
			assert.Equal(t, test.want, got)
		})
	}
}

// Who ended a task, and how, is kept as who submitted it is.
func TestAuditOfWorkers(t *testing.T) {
	store := newMemory()
	s := newService(t, store)
	for range 3 {
		s.submit(t, all, `{"job_type":"inference"}`)
	}
	ids := map[string][]string{}
	for _, action := range []string{"complete", "complete", "fail"} {
		id, _ := s.lease(t, "inference")
		ids["tasks."+action] = append(ids["tasks."+action], id)
		require.Equal(t, http.StatusConflict, s.send(t, "POST", "/api/v1/tasks/"+id+"/"+action, worker, `{"lease_token":99}`).status, "it is not kept")
		a := s.send(t, "POST", "/api/v1/tasks/"+id+"/"+action, worker, `{"lease_token":1}`, "X-Request-Id", "of-"+action)
		require.Equal(t, http.StatusOK, a.status, "%s", a.body)
	}
	handler := s.Config.Handler.(*rest.Handler)
	s.Close()
	handler.Wait()
	count := map[string]int{}
	for _, entry := range store.audits {
		if entry.Action == "jobs.create" {
			continue
		}
		n := 1
		if entry.Message != "" {
			n = 2
		}
		count[entry.Action] += n
		assert.Contains(t, ids[entry.Action], entry.JobID)
		assert.Equal(t, jobs.AuditEntry{
			Time: entry.Time, User: worker, Action: entry.Action, Namespace: "team-a", JobID: entry.JobID,
			RequestID: "of-" + strings.TrimPrefix(entry.Action, "tasks."), Status: 200, Message: entry.Message,
		}, entry)
	}
	assert.Equal(t, map[string]int{"tasks.complete": 2, "tasks.fail": 1}, count)
}
