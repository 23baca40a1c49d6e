package engine_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/engine"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
	"github.com/dcnlab/spot-training-operator/test/harness/postgres"
	"github.com/dcnlab/spot-training-operator/test/harness/redis"
)

// durable servers wait for the disk at each commit, as in production.
func durable(b *testing.B) *backend {
	both := &backend{postgres: postgres.Start(b, "fsync=on", "max_wal_size=4GB"), redis: redis.Start(b, redis.AppendOnly)}
	both.options.DatabaseURL, both.options.RedisURL = both.postgres.URL, both.redis.URL
	return both
}

func seconds(name string, standard float64) time.Duration {
	if text := os.Getenv(name); text != "" {
		standard, _ = strconv.ParseFloat(text, 64)
	}
	return time.Duration(standard * float64(time.Second))
}

func percentile(all []time.Duration, q float64) float64 {
	slices.Sort(all)
	return float64(all[min(len(all)-1, int(q*float64(len(all))))].Microseconds()) / 1000
}

func median(all []float64) float64 {
	slices.SortFunc(all, cmp.Compare[float64])
	return all[len(all)/2]
}

// BenchmarkSubmit measures how many jobs are accepted, each by a call of its own or a hundred in one, acknowledged after they are durable
// and queued; how many rows of the same kind PostgreSQL alone takes from a client in batches of 1,000, with the same table, indexes and
// counts; and the latency of calls of one job at 70 % of their rate. Rounds alternate; the figures are medians of five.
func BenchmarkSubmit(b *testing.B) {
	servers := durable(b)
	store := servers.open(b)
	connection, err := pgx.Connect(b.Context(), servers.postgres.URL)
	require.NoError(b, err)
	defer func() { _ = connection.Close(b.Context()) }()
	span := seconds("BENCH_SECONDS", 2)
	var ours, alone, hundreds []float64
	for range 5 {
		ours = append(ours, submitFor(b, store, span, 1024, 1))
		hundreds = append(hundreds, submitFor(b, store, span, 32, 100))
		alone = append(alone, insertFor(b, connection, span))
	}
	rate := median(ours)
	b.ReportMetric(rate, "jobs/s")
	b.ReportMetric(median(hundreds), "jobs-in-hundreds/s")
	b.ReportMetric(median(alone), "rows/s-PostgreSQL-alone")
	b.ReportMetric(rate/median(alone), "ratio")
	b.ReportMetric(median(hundreds)/median(alone), "ratio-in-hundreds")
	var p50, p99 []float64
	for range 5 {
		latencies := submitAt(b, store, 0.7*rate, span)
		p50, p99 = append(p50, percentile(latencies, 0.5)), append(p99, percentile(latencies, 0.99))
	}
	b.ReportMetric(median(p50), "ms-p50-at-70%")
	b.ReportMetric(median(p99), "ms-p99-at-70%")
	b.ReportMetric(0, "ns/op")
}

// submitFor submits by so many callers at once, size jobs a call, and returns the rate.
func submitFor(b *testing.B, store jobs.Store, span time.Duration, callers, size int) float64 {
	var n atomic.Int64
	var group sync.WaitGroup
	begun := time.Now()
	for range callers {
		group.Go(func() {
			for time.Since(begun) < span {
				batch := make([]*jobs.Job, size)
				for i := range batch {
					batch[i] = job()
				}
				if _, err := store.Submit(b.Context(), batch); err != nil {
					b.Error(err)
					return
				}
				n.Add(int64(size))
			}
		})
	}
	group.Wait()
	return float64(n.Load()) / time.Since(begun).Seconds()
}

// insertFor sends rows as Submit writes them, from one connection, and does nothing else: what is the same in all of them is made once.
func insertFor(b *testing.B, connection *pgx.Conn, span time.Duration) float64 {
	const size = 1000
	spec := `{"config":{"input":"x"},"resources":{"cpu":"500m","memory":"1Gi","gpu":1},"timeoutMilliseconds":60000,"maxRetries":2,"backoffMultiplier":2}`
	ids, specs := make([]uuid.UUID, size), slices.Repeat([]string{spec}, size)
	begun, n := time.Now(), 0
	for ; time.Since(begun) < span; n += size {
		for i := range ids {
			ids[i] = uuid.Must(uuid.NewV7())
		}
		_, err := connection.Exec(b.Context(), `INSERT INTO jobs (id, namespace, queue, type, executor, priority, submitter, spec, created_at, queued_at)
SELECT id, 'team-b', 'alone', 'inference', 'pool', 50, 'ann', spec, $3, $3 FROM unnest($1::uuid[], $2::json[]) AS given (id, spec)`,
			ids, specs, time.Now().UnixMicro())
		require.NoError(b, err)
	}
	return float64(n) / time.Since(begun).Seconds()
}

// submitAt submits at a rate, whether the answers come or not, and returns how long each took.
func submitAt(b *testing.B, store jobs.Store, rate float64, span time.Duration) []time.Duration {
	var (
		mutex     sync.Mutex
		latencies []time.Duration
		group     sync.WaitGroup
	)
	begun, n := time.Now(), 0
	for elapsed := time.Duration(0); elapsed < span; elapsed = time.Since(begun) {
		for ; float64(n) < rate*elapsed.Seconds(); n++ {
			due := begun.Add(time.Duration(float64(n) / rate * float64(time.Second)))
			group.Go(func() {
				if _, err := store.Submit(b.Context(), []*jobs.Job{job()}); err != nil {
					b.Error(err)
				}
				took := time.Since(due) // since it should have begun
				mutex.Lock()
				latencies = append(latencies, took)
				mutex.Unlock()
			})
		}
		time.Sleep(time.Millisecond)
	}
	group.Wait()
	return latencies
}

// BenchmarkDispatch measures from the call of Submit until a waiting worker has the lease, at 1,000 jobs a second that their
// workers complete. Medians of five rounds.
func BenchmarkDispatch(b *testing.B) {
	store := durable(b).open(b)
	span := seconds("BENCH_SECONDS", 2)
	var p50, p99 []float64
	for i := range 5 {
		latencies := dispatchAt(b, store, fmt.Sprintf("round-%d", i), 1000, span)
		p50, p99 = append(p50, percentile(latencies, 0.5)), append(p99, percentile(latencies, 0.99))
	}
	b.ReportMetric(median(p50), "ms-p50")
	b.ReportMetric(median(p99), "ms-p99")
	b.ReportMetric(0, "ns/op")
}

func dispatchAt(b *testing.B, store *engine.Store, queue string, rate float64, span time.Duration) []time.Duration {
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	var (
		mutex     sync.Mutex
		latencies []time.Duration
		workers   sync.WaitGroup
	)
	total := int(rate * span.Seconds())
	for i := range 64 {
		workers.Go(func() {
			for ctx.Err() == nil {
				leases, _ := store.Lease(ctx, jobs.LeaseRequest{
					Queue: queue, Executor: jobs.Pool, Worker: strconv.Itoa(i), Limit: 1, Wait: 20 * time.Second,
				})
				now := time.Now()
				for _, l := range leases {
					sent, _ := strconv.ParseInt(strings.Trim(string(l.Job.Config), `"`), 10, 64)
					mutex.Lock()
					latencies = append(latencies, now.Sub(time.UnixMicro(sent)))
					if len(latencies) == total {
						stop()
					}
					mutex.Unlock()
					_, _ = store.Complete(b.Context(), l.Job.ID, l.Fence, json.RawMessage(`{}`))
				}
			}
		})
	}
	time.Sleep(200 * time.Millisecond) // all wait
	begun, n := time.Now(), 0
	var submitters sync.WaitGroup
	for n < total {
		for ; n < total && float64(n) < rate*time.Since(begun).Seconds(); n++ {
			submitters.Go(func() {
				one := job(func(j *jobs.Job) {
					j.Queue = queue
					j.Config = json.RawMessage(fmt.Sprintf(`"%d"`, time.Now().UnixMicro()))
				})
				if _, err := store.Submit(b.Context(), []*jobs.Job{one}); err != nil {
					b.Error(err)
				}
			})
		}
		time.Sleep(500 * time.Microsecond)
	}
	submitters.Wait()
	workers.Wait()
	require.Len(b, latencies, total)
	return latencies
}
