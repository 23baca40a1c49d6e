package performance

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// worker answers in place of the replica 0 of one job, or of many.
type worker struct {
	port    int
	answers atomic.Int64
}

// startWorker starts a worker on a port of its own that writes its answers, counted from 1, by the function.
func (b *bench) startWorker(write func(to io.Writer, answer int64)) *worker {
	w := &worker{}
	server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) { write(answer, w.answers.Add(1)) }))
	b.Cleanup(server.Close)
	w.port = server.Listener.Addr().(*net.TCPAddr).Port
	return w
}

// reports has a job's figures read from the worker.
func (w *worker) reports(job *mlv1.TrainingJob) {
	job.Spec.Monitoring = mlv1.Monitoring{MetricsPort: int32(w.port)}
}

// advancing figures change with every answer up to a last epoch, after which they stay.
func advancing(last int64) func(to io.Writer, answer int64) {
	return func(to io.Writer, answer int64) { writeFigures(to, min(answer, last), 10, 0.5) }
}

// everChanging figures have the families that the reference worker has, and no two answers are alike.
func everChanging(to io.Writer, answer int64) {
	x := float64(answer)
	writeFigures(to, answer, 1000, 1-1/(x+1))
	_, _ = fmt.Fprintf(to, `# TYPE training_gpu_utilization_percent gauge
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
`, 50+40/x, 1000+x, 3/x, 2/x)
}

func writeFigures(to io.Writer, epoch, epochs int64, accuracy float64) {
	_, _ = fmt.Fprintf(to, `# TYPE training_epoch gauge
training_epoch %d
# TYPE training_epochs gauge
training_epochs %d
# TYPE training_progress_ratio gauge
training_progress_ratio %g
# TYPE training_loss gauge
training_loss %g
# TYPE training_accuracy gauge
training_accuracy %g
`, epoch, epochs, float64(epoch)/float64(epochs), 1/float64(epoch), accuracy)
}
