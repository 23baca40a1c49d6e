package main

import (
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// worker answers in place of the replica 0 of one job, or of many. Its figures advance with every answer, up to a last
// epoch, after which they stay.
type worker struct {
	port    int
	last    int64
	server  *http.Server
	answers atomic.Int64
}

// startWorker starts a worker with so many different answers on a port of its own.
func startWorker(answers int64) (*worker, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &worker{port: listener.Addr().(*net.TCPAddr).Port, last: answers}
	w.server = &http.Server{Handler: w, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = w.server.Serve(listener) }()
	return w, nil
}

func (w *worker) stop() { _ = w.server.Close() }

// news is how many answers had figures that those before had not.
func (w *worker) news() int64 { return min(w.answers.Load(), w.last) }

// ServeHTTP implements http.Handler.
func (w *worker) ServeHTTP(answer http.ResponseWriter, _ *http.Request) {
	epoch := min(w.answers.Add(1), w.last)
	_, _ = fmt.Fprintf(answer, `# TYPE training_epoch gauge
training_epoch %d
# TYPE training_epochs gauge
training_epochs 10
# TYPE training_progress_ratio gauge
training_progress_ratio %g
# TYPE training_loss gauge
training_loss %g
# TYPE training_accuracy gauge
training_accuracy 0.5
`, epoch, float64(epoch)/10, 1/float64(epoch))
}
