package rest_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/rest"
)

// clock that a test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func TestLimits(t *testing.T) {
	// Seven seconds into a minute.
	now := &clock{now: time.Date(2026, 3, 1, 12, 0, 7, 0, time.UTC)}
	s := newService(t, newMemory(), func(o *rest.Options) {
		o.Limits, o.Now = rest.Limits{Create: 3, List: 2, Other: 4}, now.Now
	})
	type request struct{ method, path, user, body string }
	create := request{"POST", "/jobs/", all, `{"job_type":"inference"}`}
	batch := request{"POST", "/jobs/batch", all, `{"jobs":[{"job_type":"inference"}]}`}
	wrong := request{"POST", "/jobs/", all, `{}`}
	list := request{"GET", "/jobs/", all, ""}
	get := request{"GET", "/queues/", all, ""}
	anonymous := request{"GET", "/queues/", noToken, ""}
	health := request{"GET", "/health/live", noToken, ""}
	lease := request{"POST", "/tasks/lease", all, `{"queue":"empty","worker_id":"w","wait_seconds":0}`}
	for i, test := range []struct {
		request
		status, limit, remaining int
	}{
		{create, 201, 3, 2}, {wrong, 400, 3, 1}, {batch, 201, 3, 0}, {create, 429, 3, 0}, {create, 429, 3, 0},
		{list, 200, 2, 1}, {list, 200, 2, 0}, {list, 429, 2, 0},
		{get, 200, 4, 3},
		{request{"POST", "/jobs/", other, create.body}, 201, 3, 2}, // Another client is not kept from it.
		{anonymous, 401, 4, 3}, {anonymous, 401, 4, 2}, {anonymous, 401, 4, 1}, {anonymous, 401, 4, 0}, {anonymous, 429, 4, 0},
		{get, 200, 4, 2}, // Nor is one with a token from the same address.
		{health, 200, 0, 0}, {lease, 200, 0, 0},
	} {
		a := s.send(t, test.method, "/api/v1"+test.path, test.user, test.body)
		require.Equal(t, test.status, a.status, "request %d: %s", i, a.body)
		if test.limit == 0 {
			assert.Empty(t, a.header.Get("X-RateLimit-Limit"))
			continue
		}
		assert.Equal(t, strconv.Itoa(test.limit), a.header.Get("X-RateLimit-Limit"))
		assert.Equal(t, strconv.Itoa(test.remaining), a.header.Get("X-RateLimit-Remaining"), "request %d", i)
		assert.Equal(t, strconv.FormatInt(now.now.Truncate(time.Minute).Add(time.Minute).Unix(), 10), a.header.Get("X-RateLimit-Reset"))
		if test.status == http.StatusTooManyRequests {
			assert.Equal(t, "53", a.header.Get("Retry-After"))
			code, _, message := a.problem(t)
			assert.Equal(t, "RATE_LIMITED", code)
			assert.Contains(t, message, "wait 53 seconds")
		}
	}
	// What Retry-After says is true.
	now.Add(53 * time.Second)
	assert.Equal(t, 201, s.send(t, "POST", "/api/v1/jobs/", all, create.body).status)
	// A clock that is set back gives nothing.
	now.Add(-2 * time.Minute)
	a := s.send(t, "POST", "/api/v1/jobs/", all, create.body)
	assert.Equal(t, "1", a.header.Get("X-RateLimit-Remaining"))
}

// As many as the limit get through, however many come at a time.
func TestLimitsHoldWhenAllComeAtOnce(t *testing.T) {
	now := &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	s := newService(t, newMemory(), func(o *rest.Options) { o.Limits, o.Now = rest.Limits{Other: 25}, now.Now })
	var mu sync.Mutex
	count := map[int]int{}
	var group sync.WaitGroup
	bearer := token(t, all)
	for range 8 {
		group.Go(func() {
			for range 10 {
				request, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/api/v1/clusters/", nil)
				if err != nil {
					panic(err)
				}
				request.Header.Set("Authorization", "Bearer "+bearer)
				answer, err := client.Do(request)
				if err != nil {
					panic(err)
				}
				_ = answer.Body.Close()
				mu.Lock()
				count[answer.StatusCode]++
				mu.Unlock()
			}
		})
	}
	group.Wait()
	assert.Equal(t, map[int]int{200: 25, 429: 55}, count)
}

// A client that invents names uses bounded memory, and gets no more than all such clients together.
func TestLimitsOfVeryManyClients(t *testing.T) {
	limited := rest.NewLimiterForTest(rest.Limits{Create: 1})
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	passed := 0
	const clients = 300_000
	for i := range clients {
		if limited.Take(fmt.Sprint("client ", i), at) {
			passed++
		}
	}
	assert.Less(t, passed, 16*8192+16+1)
	assert.Greater(t, passed, 100_000)
	assert.True(t, limited.Take("client 299999", at.Add(time.Minute)), "the next minute has its own count")
}

// A batch counts as what it brings.
func TestTheJobsOfABatchAreCounted(t *testing.T) {
	now := &clock{now: time.Date(2026, 3, 1, 12, 0, 7, 0, time.UTC)}
	s := newService(t, newMemory(), func(o *rest.Options) { o.Limits, o.Now = rest.Limits{Create: 100, Jobs: 5}, now.Now })
	batch := func(user string, n int) answer {
		one := `{"job_type":"inference"}`
		return s.send(t, "POST", "/api/v1/jobs/batch", user, `{"jobs":[`+strings.Repeat(one+",", n-1)+one+`]}`)
	}
	never := batch(all, 6)
	require.Equal(t, http.StatusBadRequest, never.status, "whenever it comes")
	assert.Empty(t, never.header.Get("Retry-After"))
	_, _, why := never.problem(t)
	assert.Contains(t, why, "the request has 6 jobs, and a client may submit 5 in a minute")
	assert.Contains(t, why, "--rate-limit-jobs")
	require.Equal(t, http.StatusCreated, batch(all, 4).status)
	refused := batch(all, 2)
	require.Equal(t, http.StatusTooManyRequests, refused.status, "all of a batch or nothing")
	_, _, message := refused.problem(t)
	assert.Contains(t, message, "more than 5 jobs in a minute: wait 53 seconds")
	require.Equal(t, http.StatusCreated, s.send(t, "POST", "/api/v1/jobs/", all, `{"job_type":"inference"}`).status)
	assert.Equal(t, http.StatusTooManyRequests, s.send(t, "POST", "/api/v1/jobs/", all, `{"job_type":"inference"}`).status)
	assert.Equal(t, http.StatusCreated, batch(other, 5).status, "another client")
	now.Add(53 * time.Second)
	assert.Equal(t, http.StatusCreated, batch(all, 5).status)
}

// What one namespace can fill the store with is bounded, whatever it sends in one request; others go on.
func TestANamespaceHasNoMoreOpenJobsThanItMay(t *testing.T) {
	now := &clock{now: time.Date(2026, 3, 1, 12, 0, 7, 0, time.UTC)}
	s := newService(t, newMemory(), func(o *rest.Options) { o.Limits, o.MaxOpenJobs, o.Now = rest.DefaultLimits, 3, now.Now })
	batch := func(namespace string, n int) answer {
		one := fmt.Sprintf(`{"job_type":"inference","namespace":%q}`, namespace)
		return s.send(t, "POST", "/api/v1/jobs/batch", admin, `{"jobs":[`+strings.Repeat(one+",", n-1)+one+`]}`)
	}
	require.Equal(t, http.StatusCreated, batch("team-a", 2).status)
	full := batch("team-a", 2)
	assert.Equal(t, http.StatusTooManyRequests, full.status, "all of a batch or nothing")
	assert.Equal(t, "30", full.header.Get("Retry-After"))
	_, _, message := full.problem(t)
	assert.Contains(t, message, "namespace team-a has 2 jobs that have not ended, and may have 3")
	one := batch("team-a", 1)
	require.Equal(t, http.StatusCreated, one.status)
	assert.Equal(t, http.StatusTooManyRequests, batch("team-a", 1).status)
	assert.Equal(t, http.StatusCreated, batch("team-b", 3).status, "another namespace")

	id := one.json(t)["items"].([]any)[0].(map[string]any)["id"].(string)
	require.Equal(t, http.StatusOK, s.send(t, "DELETE", "/api/v1/jobs/"+id, admin, "").status)
	assert.Equal(t, http.StatusCreated, batch("team-a", 1).status, "one was cancelled")
}

// What one user can fill the store with is bounded in all namespaces together; others of the same namespace go on.
func TestAUserHasNoMoreOpenJobsThanItMay(t *testing.T) {
	now := &clock{now: time.Date(2026, 3, 1, 12, 0, 7, 0, time.UTC)}
	s := newService(t, newMemory(), func(o *rest.Options) {
		o.Limits, o.MaxOpenJobs, o.MaxOpenJobsPerUser, o.Now = rest.DefaultLimits, 5, 3, now.Now
	})
	job := func(namespace string) string {
		return fmt.Sprintf(`{"job_type":"inference","namespace":%q}`, namespace)
	}
	one := func(user, namespace string) answer { return s.send(t, "POST", "/api/v1/jobs/", user, job(namespace)) }
	batch := func(user string, of ...string) answer {
		return s.send(t, "POST", "/api/v1/jobs/batch", user, `{"jobs":[`+strings.Join(of, ",")+`]}`)
	}
	require.Equal(t, http.StatusCreated, batch(admin, job("team-a"), job("team-b")).status)
	full := batch(admin, job("team-a"), job("team-c"))
	assert.Equal(t, http.StatusTooManyRequests, full.status, "all of a batch or nothing")
	assert.Equal(t, "30", full.header.Get("Retry-After"))
	code, _, message := full.problem(t)
	assert.Equal(t, "RATE_LIMITED", code)
	assert.Contains(t, message, "user admin has 2 jobs that have not ended, and may have 3 with the 2 of this request")
	assert.Contains(t, message, "ask the administrator for a higher --max-open-jobs-per-user")
	accepted := one(admin, "team-c")
	require.Equal(t, http.StatusCreated, accepted.status)
	assert.Equal(t, http.StatusTooManyRequests, one(admin, "team-a").status)

	assert.Equal(t, http.StatusCreated, batch(other, job("team-b"), job("team-b"), job("team-b")).status, "another user")
	assert.Equal(t, http.StatusCreated, batch(all, job("team-a"), job("team-a"), job("team-a")).status,
		"what the limit of a user refused takes no room of the namespace")

	id := accepted.json(t)["id"].(string)
	require.Equal(t, http.StatusOK, s.send(t, "DELETE", "/api/v1/jobs/"+id, admin, "").status)
	assert.Equal(t, http.StatusCreated, one(admin, "team-c").status, "one was cancelled")
}

// A job that is requeued is open again.
func TestARequeueIsLimitedAsASubmissionIs(t *testing.T) {
	const body = `{"job_type":"inference","retry_policy":{"max_retries":0}}`
	for name, test := range map[string]struct {
		limit   func(*rest.Options)
		user    string // who requeues
		message string
	}{
		"open jobs of the namespace": {func(o *rest.Options) { o.MaxOpenJobs = 1 }, all, "namespace team-a has 1 jobs that have not ended, and may have 1"},
		"open jobs of its submitter": {
			func(o *rest.Options) { o.MaxOpenJobsPerUser = 1 }, admin, "user " + all + " has 1 jobs that have not ended, and may have 1",
		},
		"jobs in a minute": {func(o *rest.Options) { o.Limits.Jobs = 2 }, all, "more than 2 jobs in a minute"},
	} {
		t.Run(name, func(t *testing.T) {
			now := &clock{now: time.Date(2026, 3, 1, 12, 0, 7, 0, time.UTC)}
			s := newService(t, newMemory(), func(o *rest.Options) { o.Limits, o.Now = rest.DefaultLimits, now.Now }, test.limit)
			requeue := func(id string) answer { return s.send(t, "POST", "/api/v1/jobs/"+id+"/requeue", test.user, "") }
			dead := s.submit(t, all, body)
			_, lease := s.lease(t, "inference")
			failure := fmt.Sprintf(`{"lease_token":%d,"message":"out of memory"}`, lease)
			require.Equal(t, http.StatusOK, s.send(t, "POST", "/api/v1/tasks/"+dead+"/fail", worker, failure).status)
			open := s.submit(t, all, body)
			refused := requeue(dead)
			require.Equal(t, http.StatusTooManyRequests, refused.status, "%s", refused.body)
			_, _, message := refused.problem(t)
			assert.Contains(t, message, test.message)
			assert.Equal(t, http.StatusConflict, requeue(open).status, "it is not in dead_letter, whatever the limits are")
			require.Equal(t, http.StatusOK, s.send(t, "DELETE", "/api/v1/jobs/"+open, all, "").status)
			now.Add(time.Minute)
			assert.Equal(t, http.StatusOK, requeue(dead).status)
		})
	}
}

// Neither more nor fewer are accepted than may be open, whichever store has them, and however often the count of a moment ago ends meanwhile.
func TestOpenJobsAreCountedWhenAllComeAtOnce(t *testing.T) {
	const most, clients = 20, 60
	for name, store := range stores() {
		for of, limit := range map[string]func(*rest.Options){
			"namespace": func(o *rest.Options) { o.MaxOpenJobs = most },
			"user":      func(o *rest.Options) { o.MaxOpenJobsPerUser = most },
		} {
			t.Run(name+" "+of, func(t *testing.T) {
				t.Parallel()
				now := &clock{now: time.Date(2026, 3, 1, 12, 0, 7, 0, time.UTC)}
				s := newService(t, store(t), limit, func(o *rest.Options) { o.Limits, o.Now = rest.DefaultLimits, now.Now })
				submit := func() int { return s.send(t, "POST", "/api/v1/jobs/", all, `{"job_type":"inference"}`).status }
				var accepted, refused atomic.Int32
				var group sync.WaitGroup
				for range clients {
					group.Go(func() {
						now.Add(3 * time.Second)
						switch submit() {
						case http.StatusCreated:
							accepted.Add(1)
						case http.StatusTooManyRequests:
							refused.Add(1)
						}
					})
				}
				group.Wait()
				assert.EqualValues(t, most, accepted.Load())
				assert.EqualValues(t, clients-most, refused.Load())
			})
		}
	}
}
