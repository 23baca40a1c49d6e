package replicas

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/go-logr/logr"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/engine"
	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// request and answer of the small protocol between the processes of the test: the Store's methods over HTTP, and nothing else.
type request struct {
	N       int    `json:"n,omitempty"`
	Retries int    `json:"retries,omitempty"`
	Worker  string `json:"worker,omitempty"`
	Job     string `json:"job,omitempty"`
	Fence   int64  `json:"fence,omitempty"`
	Final   bool   `json:"final,omitempty"`
}

type answer struct {
	IDs    []string    `json:"ids,omitempty"`
	Leases []given     `json:"leases,omitempty"`
	Until  time.Time   `json:"until,omitzero"`
	Stop   bool        `json:"stop,omitempty"`
	Status jobs.Status `json:"status,omitempty"`
}

type given struct {
	Job    string    `json:"job"`
	Fence  int64     `json:"fence"`
	Until  time.Time `json:"until"`
	Number int       `json:"number"`
}

// serve is the process of a service.
func serve(address string) error {
	store, err := engine.New(context.Background(), engine.Options{
		DatabaseURL: os.Getenv("REPLICA_DATABASE"), RedisURL: os.Getenv("REPLICA_REDIS"),
		Visibility: visibility, RetakeAfter: time.Second, OutboxAge: 500 * time.Millisecond, RetryDelay: 50 * time.Millisecond,
		OperationTimeout: 3 * time.Second, TickInterval: 50 * time.Millisecond,
		Logger: logr.FromSlogHandler(slogHandler()),
	})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	for path, do := range map[string]func(context.Context, jobs.Store, request) (answer, error){
		"/submit": submit, "/lease": leaseOne, "/heartbeat": heartbeat, "/complete": completeOne, "/fail": failOne, "/cancel": cancelOne,
	} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			var question request
			if err := json.NewDecoder(r.Body).Decode(&question); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			reply, err := do(r.Context(), store, question)
			switch {
			case err == nil:
				_ = json.NewEncoder(w).Encode(reply)
			case errors.Is(err, jobs.ErrLeaseLost), errors.Is(err, jobs.ErrEnded), errors.Is(err, jobs.ErrNotFound):
				http.Error(w, err.Error(), http.StatusConflict)
			default:
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
			}
		})
	}
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	return server.ListenAndServe()
}

func submit(ctx context.Context, store jobs.Store, q request) (a answer, err error) {
	var all []*jobs.Job
	for range q.N {
		all = append(all, &jobs.Job{
			Namespace: "faults", Queue: "faults", Type: "simulation", Executor: jobs.Pool, Priority: 50, Config: json.RawMessage(`{}`),
			Retry: jobs.Retry{MaxRetries: q.Retries, BackoffMultiplier: 1},
		})
	}
	if _, err = store.Submit(ctx, all); err == nil {
		for _, job := range all {
			a.IDs = append(a.IDs, job.ID)
		}
	}
	return a, err
}

func leaseOne(ctx context.Context, store jobs.Store, q request) (a answer, err error) {
	leases, err := store.Lease(ctx, jobs.LeaseRequest{
		Queue: "faults", Executor: jobs.Pool, Worker: q.Worker, Limit: q.N, Wait: time.Second,
	})
	for _, l := range leases {
		a.Leases = append(a.Leases, given{Job: l.Job.ID, Fence: l.Fence, Until: l.ExpiresAt, Number: l.Job.RetryCount})
	}
	return a, err
}

func heartbeat(ctx context.Context, store jobs.Store, q request) (a answer, err error) {
	a.Until, a.Stop, err = store.Heartbeat(ctx, q.Job, q.Fence)
	return a, err
}

func completeOne(ctx context.Context, store jobs.Store, q request) (answer, error) {
	job, err := store.Complete(ctx, q.Job, q.Fence, json.RawMessage(`{}`))
	return answer{Status: job.Status}, err
}

func failOne(ctx context.Context, store jobs.Store, q request) (answer, error) {
	job, err := store.Fail(ctx, q.Job, q.Fence, jobs.Failure{Message: "by chance", Retryable: !q.Final})
	return answer{Status: job.Status}, err
}

func cancelOne(ctx context.Context, store jobs.Store, q request) (answer, error) {
	job, err := store.Cancel(ctx, q.Job, "somebody")
	return answer{Status: job.Status}, err
}
