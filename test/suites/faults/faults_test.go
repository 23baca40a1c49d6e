package faults

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/test/harness/operator"
	"github.com/dcnlab/spot-training-operator/test/harness/postgres"
	"github.com/dcnlab/spot-training-operator/test/harness/process"
	"github.com/dcnlab/spot-training-operator/test/harness/stores"
)

func TestMain(m *testing.M) {
	if os.Getenv(workerName) != "" {
		runWorker()
	}
	os.Exit(m.Run())
}

// jobsVariable asks for another number of jobs than that of a short run.
const jobsVariable = "FAULT_JOBS"

func numberOfJobs(t *testing.T) int {
	text := os.Getenv(jobsVariable)
	if text == "" {
		return 2000
	}
	number, err := strconv.Atoi(text)
	require.NoError(t, err, jobsVariable)
	return number / batchSize * batchSize
}

const (
	secret     = "a secret that only the tests know, of more than 32 bytes"
	visibility = 3 * time.Second
	replicas   = 2
	workers    = 3
	submitters = 2
)

// site is all that runs.
type site struct {
	t      *testing.T
	folder string
	token  string

	database   *postgres.Server
	toDatabase *stores.Proxy
	redisURL   string
	// ofRedis are the faults of the Redis in use.
	ofRedis                []fault
	services               []*process.Server
	urls                   []string
	workers                []*process.Server
	client                 *client
	faults                 map[string]int
	submitting, chaos, all sync.WaitGroup
}

func newSite(t *testing.T, startRedis func(*site)) *site {
	s := &site{t: t, folder: t.TempDir(), faults: map[string]int{}, database: postgres.Start(t)}
	s.toDatabase = stores.NewProxy(t, s.database.Address)
	startRedis(s)
	s.token = token(t)
	program := operator.Program(s.t)
	for n := range replicas {
		s.startService(n, program)
	}
	s.client = newClient(s.urls, s.token, 30*time.Second)
	for n := range workers {
		s.workers = append(s.workers, s.startWorker(n))
	}
	return s
}

// startService starts a replica of the job service.
func (s *site) startService(n int, program string) {
	address := process.FreePort(s.t, process.AnyPort)
	alone := newClient([]string{"http://" + address}, s.token, time.Second)
	s.urls = append(s.urls, alone.urls[0])
	s.services = append(s.services, process.New(s.t, process.Options{
		Name: fmt.Sprintf("job-service %d", n), Log: filepath.Join(s.folder, fmt.Sprintf("service-%d.log", n)),
		Ready: func() error { return alone.call(context.Background(), http.MethodGet, "/health/live", nil, nil) },
		Command: func() *exec.Cmd {
			command := exec.Command(program, "job-service", "--kubernetes=false", "--bind-address="+address, "--metrics-bind-address=0",
				"--max-open-jobs=0", "--max-open-jobs-per-user=0", "--visibility-timeout="+visibility.String(), "--retry-backoff=100ms", "--log-level=warn",
				"--rate-limit-create=0", "--rate-limit-jobs=0", "--rate-limit-list=0", "--rate-limit-tasks=0", "--rate-limit-other=0")
			command.Env = append(os.Environ(),
				"DATABASE_URL=postgres://postgres@"+s.toDatabase.Address+"/postgres?sslmode=disable",
				"REDIS_URL="+s.redisURL, "JOB_SERVICE_HMAC_SECRET="+secret)
			return command
		},
	}))
}

func (s *site) startWorker(n int) *process.Server {
	starts := 0
	return process.New(s.t, process.Options{
		Name: fmt.Sprintf("worker %d", n), Log: filepath.Join(s.folder, "workers.log"), Ready: func() error { return nil },
		Command: func() *exec.Cmd {
			starts++ // each is another worker
			command := exec.Command(os.Args[0])
			command.Env = append(os.Environ(), fmt.Sprintf("%s=worker-%d-%d", workerName, n, starts), workerURLs+"="+strings.Join(s.urls, ","),
				workerToken+"="+s.token, workerFolder+"="+s.folder)
			return command
		},
	})
}

func token(t *testing.T) string {
	signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"sub": "faults", "scope": "jobs:read jobs:write tasks:work", "namespaces": []string{"*"}, "exp": time.Now().Add(12 * time.Hour).Unix(),
	}).SignedString([]byte(secret))
	require.NoError(t, err)
	return signed
}

// TestNothingThatWasAcknowledgedIsLostOrDoneTwice submits jobs while everything is killed by turns. FAULT_JOBS says how many, 2,000
// unless it is set.
func TestNothingThatWasAcknowledgedIsLostOrDoneTwice(t *testing.T) {
	for name, startRedis := range map[string]func(*site){
		"one Redis": (*site).startRedis, "Sentinel": (*site).startSentinel, "Redis Cluster": (*site).startCluster,
	} {
		t.Run(name, func(t *testing.T) { everythingIsKilled(t, startRedis) })
	}
}

func everythingIsKilled(t *testing.T, startRedis func(*site)) {
	s, total := newSite(t, startRedis), numberOfJobs(t)
	began := time.Now()
	var left atomic.Int64
	left.Store(int64(total))
	// All faults come while jobs are being submitted.
	within := max(15*time.Second, time.Duration(total)*2*time.Millisecond)
	for n := range submitters {
		name := fmt.Sprintf("client-%d", n)
		j, err := openJournal(s.folder, name)
		require.NoError(t, err)
		one := &submitter{client: newClient(s.urls, s.token, 15*time.Second), journal: j, name: name, left: &left}
		one.every = within * submitters * batchSize / time.Duration(total)
		s.submitting.Go(func() { one.run(t.Context()) })
	}
	stop := make(chan struct{})
	s.chaos.Go(func() { s.disturb(stop, total) })
	s.submitting.Wait()
	submitted := time.Since(began)
	close(stop)
	s.chaos.Wait()

	s.awaitEnd(total)
	t.Logf("%d jobs submitted in %s, ended after %s; faults: %v", total, submitted.Round(time.Second), time.Since(began).Round(time.Second), s.faults)
	events, err := readJournals(s.folder)
	require.NoError(t, err)
	outcomes := s.outcomes(events)
	s.report(events, outcomes)
	wrong := check(events, outcomes)
	for _, e := range events {
		if slices.ContainsFunc(wrong, func(problem string) bool { return strings.Contains(problem, e.Job) }) {
			t.Logf("%+v", e)
		}
	}
	assert.Empty(t, wrong)
	assert.GreaterOrEqual(t, len(outcomes), total)
}

// disturb kills and cuts, by turns, each at least once.
func (s *site) disturb(stop <-chan struct{}, total int) {
	pause := func(d time.Duration) bool {
		select {
		case <-stop:
			return false
		case <-time.After(d):
			return true
		}
	}
	faults := append([]fault{
		{"worker killed", func() { s.restart(s.workers[s.faults["worker killed"]%workers], nil) }},
		{"service killed", func() { s.restart(s.services[s.faults["service killed"]%replicas], nil) }},
		{"database killed", func() { s.restart(s.database.Server, nil) }},
		{"all services killed", func() {
			for _, service := range s.services {
				service.Kill()
			}
			for _, service := range s.services {
				s.restart(service, nil)
			}
		}},
		{"network to the database cut", func() { s.cut(s.toDatabase, s.faults["network to the database cut"]%2 == 0) }},
	}, s.ofRedis...)
	every := 500 * time.Millisecond
	if total > 10000 {
		every = 3 * time.Second
	}
	for round := 0; ; round++ {
		for _, fault := range faults {
			if !pause(every) && round > 0 {
				return
			}
			fault.do()
			s.faults[fault.name]++
		}
	}
}

func (s *site) restart(server *process.Server, between func() error) {
	server.Kill()
	if between != nil {
		assert.NoError(s.t, between())
	}
	// The processes of a PostgreSQL that was killed hold its memory for a moment.
	var err error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); <-time.After(50 * time.Millisecond) {
		if err = server.TryStart(); err == nil {
			return
		}
	}
	assert.NoError(s.t, err)
}

// cut the network for longer than a lease lasts, and have the connections gone afterwards, or go on.
func (s *site) cut(p *stores.Proxy, gone bool) {
	p.Silence(true)
	<-time.After(visibility + time.Second)
	if gone {
		p.Cut()
	}
	p.Silence(false)
}

// progress is how many jobs have ended, for a message that is written when the wait is over.
type progress string

func (p *progress) String() string { return string(*p) }

// awaitEnd waits until no job is left. Those that have ended are counted: one that has not may change its status between two questions, and
// be in neither answer.
func (s *site) awaitEnd(total int) {
	var now progress
	within := 3*time.Minute + time.Duration(total)*10*time.Millisecond
	require.Eventually(s.t, func() bool {
		all, err := s.count("")
		ended := 0
		for _, status := range []string{"succeeded", "failed", "dead_letter", "cancelled"} {
			n, failed := s.count("&status=" + status)
			ended, err = ended+n, errors.Join(err, failed)
		}
		now = progress(fmt.Sprintf("%d of %d have ended, %v", ended, all, err))
		return err == nil && ended == all
	}, within, 200*time.Millisecond, "jobs do not end: %s", &now)
}

// count is how many jobs a filter finds.
func (s *site) count(filter string) (int, error) {
	var answer struct {
		Total int `json:"total"`
	}
	err := s.client.call(s.t.Context(), http.MethodGet, "/jobs/?limit=1"+filter, nil, &answer)
	return answer.Total, err
}

// outcomes asks for the state of each job of the history.
func (s *site) outcomes(events []event) map[string]string {
	ids := map[string]bool{}
	for _, e := range events {
		ids[e.Job] = true
	}
	queue := make(chan string)
	var mu sync.Mutex
	outcomes := map[string]string{}
	for range 16 {
		s.all.Go(func() {
			for id := range queue {
				var answer struct {
					Status string `json:"status"`
				}
				if err := s.client.call(s.t.Context(), http.MethodGet, "/jobs/"+id, nil, &answer); err != nil {
					s.t.Errorf("job %s: %v", id, err)
				}
				mu.Lock()
				outcomes[id] = answer.Status
				mu.Unlock()
			}
		})
	}
	for id := range ids {
		queue <- id
	}
	close(queue)
	s.all.Wait()
	return outcomes
}

func (s *site) report(events []event, outcomes map[string]string) {
	kinds, ends := map[string]int{}, map[string]int{}
	for _, e := range events {
		kinds[string(e.Kind)]++
	}
	for _, status := range outcomes {
		ends[status]++
	}
	for _, counts := range []map[string]int{kinds, ends} {
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			s.t.Logf("%s: %d", name, counts[name])
		}
	}
}
