package main

import (
	"fmt"
	"io"
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
	write   func(to io.Writer, answer int64)
}

// startWorker starts a worker with so many different answers on a port of its own.
func startWorker(answers int64) (*worker, error) {
	w, err := startWorkerWith(func(to io.Writer, answer int64) { writeFigures(to, min(answer, answers)) })
	if err == nil {
		w.last = answers
	}
	return w, err
}

// startWorkerWith starts a worker that writes its answers, counted from 1, by the function.
func startWorkerWith(write func(to io.Writer, answer int64)) (*worker, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &worker{port: listener.Addr().(*net.TCPAddr).Port, write: write}
	w.server = &http.Server{Handler: w, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = w.server.Serve(listener) }()
	return w, nil
}

func (w *worker) stop() { _ = w.server.Close() }

// newAnswers is how many answers had figures that those before had not.
func (w *worker) newAnswers() int64 { return min(w.answers.Load(), w.last) }

// ServeHTTP implements http.Handler.
func (w *worker) ServeHTTP(answer http.ResponseWriter, _ *http.Request) {
	w.write(answer, w.answers.Add(1))
}

func writeFigures(to io.Writer, epoch int64) {
	_, _ = fmt.Fprintf(to, `# TYPE training_epoch gauge
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

// writeEverChanging has the families that the reference worker has, and no two answers are alike.
func writeEverChanging(to io.Writer, answer int64) {
	x := float64(answer)
	_, _ = fmt.Fprintf(to, `# TYPE training_epoch gauge
training_epoch %d
# TYPE training_epochs gauge
training_epochs 1000
# TYPE training_progress_ratio gauge
training_progress_ratio %g
# TYPE training_loss gauge
training_loss %g
# TYPE training_accuracy gauge
training_accuracy %g
# TYPE training_gpu_utilization_percent gauge
training_gpu_utilization_percent %g
# TYPE training_metric gauge
training_metric{name="samples_per_second"} %g
training_metric{name="gradient_norm"} %g
training_metric{name="validation_loss"} %g
# TYPE training_checkpoint_info gauge
training_checkpoint_info{path="/checkpoints/job/uid/checkpoint-epoch-1"} 1
# TYPE training_checkpoint_epoch gauge
training_checkpoint_epoch 1
# TYPE training_checkpoint_step gauge
training_checkpoint_step 1000
# TYPE training_checkpoint_size_bytes gauge
training_checkpoint_size_bytes 4.194304e+06
# TYPE training_checkpoint_timestamp_seconds gauge
training_checkpoint_timestamp_seconds 1.7e+09
`, answer, x/1000, 1/x, 1-1/(x+1), 50+40/x, 1000+x, 3/x, 2/x)
}
