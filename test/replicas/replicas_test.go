package replicas

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/test/servers/postgres"
	"github.com/dcnlab/spot-training-operator/test/servers/process"
	"github.com/dcnlab/spot-training-operator/test/servers/redis"
)

// TestMain is also the main of the services and the workers.
func TestMain(m *testing.M) {
	var err error
	switch os.Getenv("REPLICA_ROLE") {
	case "service":
		err = serve(os.Getenv("REPLICA_ADDRESS"))
	case "worker":
		err = work(strings.Split(os.Getenv("REPLICA_SERVICES"), ","), os.Getenv("REPLICA_HISTORY"), os.Getenv("REPLICA_NAME"))
	default:
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// child is a process of this program in another role.
type child struct {
	t           testing.TB
	environment []string
	log         string
	mutex       sync.Mutex
	process     *os.Process
	ended       chan struct{}
}

func (c *child) start() {
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		c.t.Error(err)
		return
	}
	defer func() { _ = log.Close() }()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), c.environment...)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread() // Pdeathsig is about the thread that started it
		err := command.Start()
		started <- err
		if err == nil {
			_ = command.Wait()
		}
		close(ended)
	}()
	if err := <-started; err != nil {
		c.t.Error(err)
		return
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.process, c.ended = command.Process, ended
}

func (c *child) kill() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.process != nil {
		_ = c.process.Kill()
		<-c.ended
		c.process = nil
	}
}

// gone says whether it ended by itself, as a service does that starts while its database is away.
func (c *child) gone() bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

type world struct {
	t              testing.TB
	postgres       *postgres.Server
	redis          *redis.Server
	toSQL, toRedis *proxy
	services       []*child
	workers        []*child
	addresses      []string
	folder, logs   string
	acknowledged   atomic.Int64
	faults         map[string]int
}

func newWorld(t testing.TB) *world {
	w := &world{
		t: t, postgres: postgres.Start(t), redis: redis.Start(t, redis.AppendOnly), folder: t.TempDir(), logs: t.TempDir(),
		faults: map[string]int{},
	}
	w.toSQL, w.toRedis = newProxy(t, w.postgres.Address), newProxy(t, w.redis.Address)
	for i := range 2 {
		address := fmt.Sprintf("127.0.0.1:%d", process.FreePort(t))
		w.addresses = append(w.addresses, address)
		w.services = append(w.services, w.child("service-"+strconv.Itoa(i), "REPLICA_ROLE=service", "REPLICA_ADDRESS="+address,
			"REPLICA_DATABASE="+strings.Replace(w.postgres.URL, w.postgres.Address, w.toSQL.Address, 1),
			"REPLICA_REDIS=redis://"+w.toRedis.Address))
	}
	for i := range 2 {
		name := strconv.Itoa(i)
		w.workers = append(w.workers, w.child("worker-"+name, "REPLICA_ROLE=worker", "REPLICA_SERVICES="+strings.Join(w.addresses, ","),
			"REPLICA_HISTORY="+w.folder, "REPLICA_NAME="+name))
	}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, c := range append(w.services, w.workers...) {
			text, _ := os.ReadFile(c.log)
			t.Logf("the end of %s:\n%s", c.log, text[max(0, len(text)-3000):])
		}
	})
	return w
}

func (w *world) child(name string, environment ...string) *child {
	c := &child{t: w.t, environment: environment, log: filepath.Join(w.logs, name)}
	c.start()
	w.t.Cleanup(c.kill)
	return c
}

// noteEnds lets the database note each end of a job, and each change of one that has ended.
func (w *world) noteEnds() {
	ctx := context.Background()
	require.Eventually(w.t, func() bool {
		connection, err := pgx.Connect(ctx, w.postgres.URL)
		if err != nil {
			return false
		}
		defer func() { _ = connection.Close(ctx) }()
		_, err = connection.Exec(ctx, `CREATE TABLE endings (job text, status text, fence bigint);
CREATE FUNCTION note_end() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO endings VALUES (new.id::text, new.status, new.fence); RETURN NULL; END $$;
CREATE TRIGGER note_end AFTER UPDATE ON jobs FOR EACH ROW
  WHEN (new.completed_at <> 0 AND old.completed_at = 0 OR old.completed_at <> 0 AND old.status <> new.status) EXECUTE FUNCTION note_end();`)
		return err == nil
	}, 30*time.Second, 50*time.Millisecond, "the services make their tables")
}

// submitAll submits until n jobs are acknowledged, and cancels a few of them.
func (w *world) submitAll(n int, rate time.Duration) {
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			history, err := newRecorder(w.folder, fmt.Sprintf("submitter-%d", i))
			if err != nil {
				w.t.Error(err)
				return
			}
			c := newClient(w.addresses)
			for int(w.acknowledged.Load()) < n {
				time.Sleep(rate)
				size, retries := 1+rand.IntN(20), 1000
				if rand.IntN(20) == 0 {
					retries = 0
				}
				a, err := c.ask(context.Background(), "/submit", request{N: size, Retries: retries})
				if err != nil {
					time.Sleep(20 * time.Millisecond)
					continue
				}
				for _, id := range a.IDs {
					history.note(accepted, id, 0, time.Time{})
				}
				w.acknowledged.Add(int64(len(a.IDs)))
				if rand.IntN(10) == 0 {
					id := a.IDs[rand.IntN(len(a.IDs))]
					if _, err := c.ask(context.Background(), "/cancel", request{Job: id}); err == nil {
						history.note(cancelled, id, 0, time.Time{})
					}
				}
			}
		})
	}
	group.Wait()
}

// harm does one thing after the other until the context ends, each at least once, and leaves everything in order.
func (w *world) harm(ctx context.Context) {
	one := func(all []*child) *child { return all[rand.IntN(len(all))] }
	again := func(c *child) { c.kill(); w.pause(300); c.start() }
	server := func(s interface{ TryStart() error }) {
		// The processes of a PostgreSQL that was killed hold its memory for a moment.
		var err error
		for range 100 {
			if err = s.TryStart(); err == nil {
				return
			}
			w.pause(100)
		}
		w.t.Error(err)
	}
	kinds := map[string]func(){
		"kill a service":               func() { again(one(w.services)) },
		"kill both services":           func() { w.services[0].kill(); again(w.services[1]); w.services[0].start() },
		"kill a worker":                func() { again(one(w.workers)) },
		"kill Redis":                   func() { w.redis.Kill(); w.pause(500); server(w.redis) },
		"kill Redis, lose its data":    func() { w.redis.Kill(); _ = w.redis.Forget(); w.pause(500); server(w.redis) },
		"kill PostgreSQL":              func() { w.postgres.Kill(); w.pause(500); server(w.postgres) },
		"cut off Redis":                func() { w.toRedis.Cut(); w.pause(1000); w.toRedis.Heal() },
		"cut off PostgreSQL":           func() { w.toSQL.Cut(); w.pause(1000); w.toSQL.Heal() },
		"hold up the way to Redis":     func() { w.toRedis.Stall(); w.pause(3000); w.toRedis.Heal() },
		"hold up the way to SQL":       func() { w.toSQL.Stall(); w.pause(3000); w.toSQL.Heal() },
		"a service dies as SQL stalls": func() { w.toSQL.Stall(); w.pause(200); one(w.services).kill(); w.pause(300); w.toSQL.Heal() },
	}
	for {
		for _, name := range shuffled(kinds) {
			kinds[name]()
			w.faults[name]++
			w.pause(600)
			for _, c := range w.services {
				if c.gone() {
					c.start()
				}
			}
			if ctx.Err() != nil && len(w.faults) == len(kinds) {
				return
			}
		}
	}
}

// pause up to a number of milliseconds.
func (w *world) pause(most int) {
	time.Sleep(time.Duration(most/3+rand.IntN(2*most/3)) * time.Millisecond)
}

func shuffled(kinds map[string]func()) []string {
	var names []string
	for name := range kinds { // in no order by itself, shuffled all the same
		names = append(names, name)
	}
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names
}

// ended waits until no job is open, and returns how each ended.
func (w *world) ended(t *testing.T) (map[string][]ending, map[string]string) {
	ctx := context.Background()
	connection, err := pgx.Connect(ctx, w.postgres.URL)
	require.NoError(t, err)
	defer func() { _ = connection.Close(ctx) }()
	open := -1
	require.Eventually(t, func() bool {
		for _, c := range w.services {
			if c.gone() {
				c.start()
			}
		}
		require.NoError(t, connection.QueryRow(ctx, "SELECT count(*) FROM jobs WHERE completed_at = 0").Scan(&open))
		return open == 0
	}, 5*time.Minute, 100*time.Millisecond, "jobs are left that never end")
	endings, final := map[string][]ending{}, map[string]string{}
	rows, err := connection.Query(ctx, "SELECT job, status, fence FROM endings")
	require.NoError(t, err)
	for rows.Next() {
		var id string
		var e ending
		require.NoError(t, rows.Scan(&id, &e.Status, &e.Fence))
		endings[id] = append(endings[id], e)
	}
	require.NoError(t, rows.Err())
	rows, err = connection.Query(ctx, "SELECT id::text, status FROM jobs")
	require.NoError(t, err)
	for rows.Next() {
		var id, status string
		require.NoError(t, rows.Scan(&id, &status))
		final[id] = status
	}
	require.NoError(t, rows.Err())
	return endings, final
}

func TestEachAcknowledgedJobEndsOnceAndNoneRunsTwiceAtATime(t *testing.T) {
	n, rate := 2000, 80*time.Millisecond
	if text := os.Getenv("FAULT_JOBS"); text != "" {
		var err error
		n, err = strconv.Atoi(text)
		require.NoError(t, err)
		rate = 10 * time.Millisecond
	}
	w := newWorld(t)
	w.noteEnds()
	ctx, stop := context.WithCancel(t.Context())
	harmed := make(chan struct{})
	go func() { defer close(harmed); w.harm(ctx) }()
	begun := time.Now()
	w.submitAll(n, rate)
	stop()
	<-harmed
	endings, final := w.ended(t)
	took := time.Since(begun)
	for _, c := range append(w.workers, w.services...) {
		c.kill()
	}
	history, err := readHistory(w.folder)
	require.NoError(t, err)
	wrong := check(history, endings, final)
	if len(wrong) > 20 {
		wrong = append(wrong[:20], fmt.Sprintf("and %d more", len(wrong)-20))
	}
	require.Empty(t, wrong, strings.Join(wrong, "\n"))

	statuses, kinds := map[string]int{}, map[string]int{}
	for _, status := range final {
		statuses[status]++
	}
	for _, e := range history {
		kinds[e.Kind]++
	}
	t.Logf("%d jobs acknowledged, %d in the database, %v, in %s under %v; history: %v", kinds[accepted], len(final), statuses,
		took.Round(time.Second), w.faults, kinds)
	require.GreaterOrEqual(t, kinds[accepted], n)
	require.Greater(t, kinds[leased], n, "some jobs were leased again")
}
