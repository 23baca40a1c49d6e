package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

func (d *demo) summarize(ctx context.Context, job *mlv1.TrainingJob) error {
	fmt.Printf("\nCompleted: %s after %s, %d restarts.\n", job.Status.Reason, job.Status.Duration, job.Status.RestartCount)
	if err := d.showRanks(ctx, job); err != nil {
		return err
	}
	d.view.curve(job.Status.TotalEpochs)
	if err := d.showCheckpoint(ctx, job); err != nil {
		return err
	}
	kubectl(ctx, "get", "job,pod,service,configmap,serviceaccount,pvc", "-l", mlv1.LabelTrainingJob+"="+job.Name, "-n", job.Namespace)
	kubectl(ctx, "get", "trainingjob", job.Name, "-n", job.Namespace, "-o", "wide")
	return nil
}

// showRanks prints what every worker says of its own part. It is an error when one did not take part.
func (d *demo) showRanks(ctx context.Context, job *mlv1.TrainingJob) error {
	pods, err := d.pods.CoreV1().Pods(job.Namespace).List(ctx, metav1.ListOptions{LabelSelector: mlv1.LabelTrainingJob + "=" + job.Name})
	if err != nil {
		return fmt.Errorf("list the workers: %w", err)
	}
	fmt.Println("\nWhat the workers say:")
	ranks := map[string]bool{}
	for _, pod := range pods.Items {
		log, err := d.pods.CoreV1().Pods(job.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err != nil {
			return fmt.Errorf("read the log of %s: %w", pod.Name, err)
		}
		for line := range strings.Lines(string(log)) {
			trained := strings.Contains(line, " trained ")
			if trained || strings.Contains(line, " joined, ") {
				fmt.Printf("  %s: %s", pod.Name, line)
			}
			if trained {
				ranks[pod.Labels[mlv1.LabelReplicaID]] = true
			}
		}
	}
	if len(ranks) != int(job.Spec.NumWorkers) {
		return fmt.Errorf("%d of %d workers say that they trained", len(ranks), job.Spec.NumWorkers)
	}
	return nil
}

// showCheckpoint says where the newest checkpoint lies. Where the volume is a directory of this machine its files are
// listed.
func (d *demo) showCheckpoint(ctx context.Context, job *mlv1.TrainingJob) error {
	checkpoint := job.Status.Checkpoint
	if checkpoint == nil {
		return errors.New("the status names no checkpoint")
	}
	fmt.Printf("\nNewest checkpoint: epoch %d, step %d, %d bytes, %s on claim %s\n",
		checkpoint.Epoch, checkpoint.Step, checkpoint.SizeBytes, checkpoint.Path, checkpoint.ClaimName)
	var claim corev1.PersistentVolumeClaim
	if err := d.Get(ctx, client.ObjectKey{Namespace: job.Namespace, Name: checkpoint.ClaimName}, &claim); err != nil {
		return fmt.Errorf("read the claim: %w", err)
	}
	var volume corev1.PersistentVolume
	if err := d.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, &volume); err != nil {
		return fmt.Errorf("read the volume: %w", err)
	}
	root := localPath(volume)
	if root == "" {
		return nil
	}
	dir := filepath.Join(root, checkpoint.Path)
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return fmt.Errorf("the checkpoint is not where the status says: %w", err)
		}
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		fmt.Printf("  %10d  %s\n", info.Size(), strings.TrimPrefix(path, root))
		return nil
	})
}

// localPath is the directory of a volume on its node; empty when the volume is none, or the node is another machine.
func localPath(volume corev1.PersistentVolume) string {
	path := ""
	switch {
	case volume.Spec.HostPath != nil:
		path = volume.Spec.HostPath.Path
	case volume.Spec.Local != nil:
		path = volume.Spec.Local.Path
	}
	if _, err := os.Stat(path); path == "" || err != nil {
		return ""
	}
	return path
}
