package faults

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"time"
)

// The environment of a worker's process.
const (
	workerName   = "FAULTS_WORKER"
	workerURLs   = "FAULTS_URLS"
	workerToken  = "FAULTS_TOKEN"
	workerFolder = "FAULTS_FOLDER"
)

// queueName is the queue of all jobs.
const queueName = "faults"

// tasksAtOnce is how many tasks a worker has at a time.
const tasksAtOnce = 50

// task is what a worker is given.
type task struct {
	ID         string    `json:"id"`
	LeaseToken int64     `json:"lease_token"`
	ExpiresAt  time.Time `json:"lease_expires_at"`
	Visibility float64   `json:"visibility_timeout_seconds"`
}

// worker takes tasks until it is killed. Most it finishes at once; some take longer than a lease, some fail, and some it holds beyond
// its lease, to come too late.
type worker struct {
	*client
	*journal
	name string
}

func runWorker() {
	w := &worker{client: newClient(strings.Split(os.Getenv(workerURLs), ","), os.Getenv(workerToken), 15*time.Second), name: os.Getenv(workerName)}
	var err error
	if w.journal, err = openJournal(os.Getenv(workerFolder), w.name); err != nil {
		panic(err)
	}
	busy := make(chan struct{}, tasksAtOnce)
	for ctx := context.Background(); ; {
		busy <- struct{}{} // waits until there is room for one
		room := 1 + cap(busy) - len(busy)
		<-busy
		var answer struct {
			Tasks []task `json:"tasks"`
		}
		request := map[string]any{"queue": queueName, "worker_id": w.name, "max_tasks": room, "wait_seconds": 2}
		if err := w.call(ctx, http.MethodPost, "/tasks/lease", request, &answer); err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		now := time.Now()
		events := make([]event, 0, len(answer.Tasks))
		for _, t := range answer.Tasks {
			events = append(events, event{At: now, Kind: granted, Job: t.ID, Who: w.name, Fence: t.LeaseToken, Until: t.ExpiresAt})
		}
		w.write(events...)
		for _, t := range answer.Tasks {
			busy <- struct{}{}
			go func() {
				defer func() { <-busy }()
				w.do(ctx, t)
			}()
		}
	}
}

func (w *worker) do(ctx context.Context, t task) {
	visibility := time.Duration(t.Visibility * float64(time.Second))
	switch chance := rand.IntN(1000); {
	case chance < 20:
		w.note(t, givesBack, time.Time{})
		w.say(ctx, t, "fail", map[string]any{"lease_token": t.LeaseToken, "message": "it did not work", "retryable": true}, gaveBack)
		return
	case chance < 25: // too late
		time.Sleep(visibility + visibility/4)
	case chance < 35: // long, but alive
		for range 4 {
			time.Sleep(visibility / 3)
			if !w.heartbeat(ctx, t) {
				return
			}
		}
	}
	w.say(ctx, t, "complete", map[string]any{"lease_token": t.LeaseToken, "result": map[string]any{"worker": w.name}}, finished)
}

// heartbeat says whether the task may go on.
func (w *worker) heartbeat(ctx context.Context, t task) bool {
	var answer struct {
		ExpiresAt time.Time `json:"lease_expires_at"`
		Cancel    bool      `json:"cancel"`
	}
	err := w.call(ctx, http.MethodPost, "/tasks/"+t.ID+"/heartbeat", map[string]any{"lease_token": t.LeaseToken}, &answer)
	switch {
	case err == nil && !answer.Cancel:
		w.note(t, extended, answer.ExpiresAt)
		return true
	case err == nil || isRefusal(err):
		w.note(t, refused, time.Time{})
		return false
	}
	return true // nothing is known: the next one will tell
}

// say tells the end of a task, until there is an answer or it is far too late for one.
func (w *worker) say(ctx context.Context, t task, path string, request map[string]any, done kind) {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		err := w.call(ctx, http.MethodPost, "/tasks/"+t.ID+"/"+path, request, nil)
		switch {
		case err == nil:
			w.note(t, done, time.Time{})
			return
		case isRefusal(err):
			w.note(t, refused, time.Time{})
			return
		}
	}
}

func (w *worker) note(t task, what kind, until time.Time) {
	w.write(event{At: time.Now(), Kind: what, Job: t.ID, Who: w.name, Fence: t.LeaseToken, Until: until})
}

// isRefusal says whether the service has decided: the lease is lost, or the job is not there.
func isRefusal(err error) bool {
	answer := (*refusal)(nil)
	return errors.As(err, &answer) && (answer.status == http.StatusConflict || answer.status == http.StatusNotFound)
}
