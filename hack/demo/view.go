package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
)

const (
	barWidth   = 24
	curveWidth = 48
	// showcasePercent is the progress at which the demo shows kubectl's own view once.
	showcasePercent = 40
)

// view prints a line for every change of a job that a person would care about.
type view struct {
	began     time.Time
	lastLine  string
	showcased bool
	losses    map[int32]float64 // by epoch
}

func (v *view) start(job *mlv1.TrainingJob) {
	v.began, v.losses = time.Now(), map[int32]float64{}
	fmt.Printf("\nTrainingJob %s/%s: model %s on data set %s, %d workers, %s\n\n",
		job.Namespace, job.Name, job.Spec.Model, job.Spec.Dataset, job.Spec.NumWorkers, job.Spec.Framework)
	fmt.Printf("  %6s  %-13s %-*s  %-7s %-8s %-9s %s\n", "TIME", "STATE", barWidth+7, "PROGRESS", "EPOCH", "LOSS", "ACCURACY", "")
}

// update prints the job's new status. It returns true once, in the middle of the training.
func (v *view) update(job *mlv1.TrainingJob) (showcase bool) {
	status := job.Status
	if loss, ok := status.Metrics["loss"]; ok && status.CurrentEpoch > 0 {
		v.losses[status.CurrentEpoch] = loss
	}
	percent, _ := strconv.Atoi(strings.TrimSuffix(status.Progress, "%"))
	line := fmt.Sprintf("%-13s %s  %-7s %-8s %-9s %s", status.State, bar(percent, status.Progress), epoch(status),
		metric(status, "loss"), metric(status, "accuracy"), remark(status))
	line = strings.TrimRight(line, " ")
	if line != v.lastLine {
		fmt.Printf("  %6s  %s\n", time.Since(v.began).Round(time.Second), line)
		v.lastLine = line
	}
	if !v.showcased && status.State == mlv1.StateRunning && percent >= showcasePercent {
		v.showcased = true
		return true
	}
	return false
}

func bar(percent int, text string) string {
	done := barWidth * min(max(percent, 0), 100) / 100
	return fmt.Sprintf("[%s%s] %4s", strings.Repeat("#", done), strings.Repeat(".", barWidth-done), text)
}

func epoch(status mlv1.TrainingJobStatus) string {
	if status.TotalEpochs == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", status.CurrentEpoch, status.TotalEpochs)
}

func metric(status mlv1.TrainingJobStatus, name string) string {
	if value, ok := status.Metrics[name]; ok {
		return strconv.FormatFloat(value, 'f', 4, 64)
	}
	return ""
}

// remark says what the columns do not: what a job that does not run waits for, or the newest checkpoint.
func remark(status mlv1.TrainingJobStatus) string {
	if status.State != mlv1.StateRunning && status.State != mlv1.StateCompleted {
		for _, condition := range status.Conditions {
			if condition.Type == reasons.ConditionInitialized {
				return condition.Message
			}
		}
		return ""
	}
	if status.Checkpoint != nil {
		return fmt.Sprintf("checkpoint of epoch %d", status.Checkpoint.Epoch)
	}
	return ""
}

func (v *view) curve(total int32) {
	highest := 0.0
	for _, loss := range v.losses {
		highest = math.Max(highest, loss)
	}
	if highest == 0 {
		return
	}
	fmt.Println("\nLoss by epoch, as last seen in it:")
	for epoch := int32(1); epoch <= total; epoch++ {
		if loss, ok := v.losses[epoch]; ok {
			width := max(int(math.Round(curveWidth*loss/highest)), 1)
			fmt.Printf("  %3d  %-8.4f %s\n", epoch, loss, strings.Repeat("#", width))
		}
	}
}

func indent(text string) {
	for line := range strings.Lines(text) {
		fmt.Print("  ", line)
	}
}
