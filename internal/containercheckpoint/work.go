package containercheckpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
)

// work is one checkpoint of one pod.
type work struct {
	agent  *Agent
	backup checkpointbackup.Backup
	pod    *corev1.Pod
	// object is the CheckpointBackup as it was last read or written.
	object *unstructured.Unstructured

	files map[string]archive
	// images that were pushed, by a schedule's earlier times as well: the last good ones stay known.
	images []checkpointbackup.Container
}

// owner is who the API server notes as the writer.
const owner = client.FieldOwner("spot-checkpoint-agent")

// errStatusNotWritten: the checkpoint goes well, but the API server did not take the status.
var errStatusNotWritten = errors.New("the status of the checkpoint could not be written")

// run takes the checkpoint and reports it. It returns an error only when the status could not be written, or when the
// agent is being stopped: then the work is left as it is, to be taken up again.
func (w *work) run(ctx context.Context, mine claim) error {
	logger := log.FromContext(ctx).WithValues("pod", w.pod.Name, "attempt", mine.attempt)
	began := w.agent.Clock.Now()
	w.files, w.images = w.current(w.own(recorded(w.object))), slices.Clone(w.backup.Status.Images)
	err := w.claim(ctx, mine, checkpointbackup.Status{
		Phase: checkpointbackup.Checkpointing, Message: "the kubelet is asked for a checkpoint", Images: w.images,
	})
	if err != nil {
		return err
	}
	err = w.checkpoint(ctx, began)
	if ctx.Err() != nil {
		return fmt.Errorf("stopped during the checkpoint of pod %s: %w", w.pod.Name, errors.Join(ctx.Err(), err))
	}
	if errors.Is(err, errStatusNotWritten) && client.IgnoreNotFound(err) != nil {
		return err // the archives stay, and it is taken up again
	}
	w.removeFiles(ctx)
	switch {
	case apierrors.IsNotFound(err):
		logger.Info("CheckpointBackup was deleted during the checkpoint")
		return nil
	case err != nil:
		logger.Info("Checkpoint failed", "reason", messageOf(err.Error()))
		return w.tell(ctx, checkpointbackup.Failed, messageOf(err.Error()))
	}
	logger.Info("Checkpoint stored", "images", w.images, "duration", w.agent.Clock.Since(began).String())
	return w.finish(ctx)
}

// checkpoint does it, and tells how far it is.
func (w *work) checkpoint(ctx context.Context, began time.Time) error {
	all, err := targets(w.backup, w.pod, w.agent.Insecure, began)
	if err != nil {
		return err
	}
	keys, err := w.credentials(ctx)
	if err != nil {
		return err
	}
	if err := w.takeAll(ctx, all); err != nil {
		return err
	}
	for _, t := range all {
		if err := w.store(ctx, t, keys); err != nil {
			return err
		}
	}
	return nil
}

// store makes an image of a container's archive and pushes it. The image takes the place of the one that the container had the time before.
func (w *work) store(ctx context.Context, t target, keys authn.Keychain) error {
	if err := w.tell(ctx, checkpointbackup.ImageBuilding, "container "+t.container); err != nil {
		return err
	}
	if err := w.checkArchive(t.container); err != nil {
		return fmt.Errorf("make an image of container %s: %w", t.container, err)
	}
	for _, phase := range []checkpointbackup.Phase{checkpointbackup.ImageBuilt, checkpointbackup.ImagePushing} {
		if err := w.tell(ctx, phase, "container "+t.container); err != nil {
			return err
		}
	}
	if err := w.push(ctx, t, keys); err != nil {
		return pushProblem(t.image, w.backup.Spec.Registry.Secret.Name, err)
	}
	w.images = slices.DeleteFunc(w.images, func(other checkpointbackup.Container) bool { return other.Name == t.container })
	w.images = append(w.images, checkpointbackup.Container{Name: t.container, Image: t.image.Name()})
	return w.tell(ctx, checkpointbackup.ImagePushed, "container "+t.container)
}

// takeAll has all containers checkpointed before any is pushed, so that the checkpoints lie as close together as can be.
func (w *work) takeAll(ctx context.Context, all []target) error {
	for _, t := range all {
		if _, ok := w.files[t.container]; ok {
			continue
		}
		// One that was written, but not reported, when the agent was stopped.
		if err := removeStrays(w.agent.Directory, w.pod, t.container, w.agent.Clock.Now()); err != nil {
			return err
		}
		if err := needSpace(w.agent.Directory, w.agent.FreeSpace); err != nil {
			return err
		}
		path, err := w.agent.Kubelet.Checkpoint(ctx, w.pod.Namespace, w.pod.Name, t.container)
		if err != nil {
			return kubeletProblem(w.agent.Node, err)
		}
		w.files[t.container] = archive{name: path, at: w.agent.Clock.Now()}
		if err := w.tell(ctx, checkpointbackup.Checkpointed, "container "+t.container); err != nil {
			return err
		}
	}
	return nil
}

// finish deletes the pod when that is asked for, and tells the end.
func (w *work) finish(ctx context.Context) error {
	if !w.backup.Spec.StopPod {
		return w.tell(ctx, checkpointbackup.Completed, "the checkpoint is stored")
	}
	err := w.agent.Client.Delete(ctx, w.pod, client.Preconditions{UID: &w.pod.UID})
	if client.IgnoreNotFound(err) != nil {
		return w.tell(ctx, checkpointbackup.CompletedWithError, messageOf("the checkpoint is stored, but the pod could not be deleted: "+err.Error()))
	}
	return w.tell(ctx, checkpointbackup.CompletedPodDeleted, "the checkpoint is stored and the pod is deleted")
}

// refuse tells why nothing is done.
func (w *work) refuse(ctx context.Context, mine claim, message string) error {
	w.files = w.own(recorded(w.object))
	w.removeFiles(ctx)
	log.FromContext(ctx).Info("Checkpoint refused", "reason", messageOf(message))
	return w.claim(ctx, mine, checkpointbackup.Status{
		Phase: checkpointbackup.Failed, Message: messageOf(message), Completed: w.agent.Clock.Now(), Images: w.backup.Status.Images,
	})
}

// claim makes the CheckpointBackup this agent's own, unless it was changed since it was read: two writes, which
// both fail when another wrote in between.
func (w *work) claim(ctx context.Context, mine claim, status checkpointbackup.Status) error {
	if readClaim(w.object.GetAnnotations()) != mine {
		next := w.object.DeepCopy()
		next.SetAnnotations(labels.Merge(next.GetAnnotations(), labels.Set{Claim: mine.String()}))
		if err := w.agent.Client.Patch(ctx, next, locked(w.object), owner); err != nil {
			return fmt.Errorf("claim CheckpointBackup %s: %w", w.backup.Key, err)
		}
		w.object = next
	}
	return w.write(ctx, status, locked(w.object))
}

// tell writes the phase, and what there is so far.
func (w *work) tell(ctx context.Context, phase checkpointbackup.Phase, message string) error {
	status := checkpointbackup.Status{Phase: phase, Message: message, Images: w.images}
	if phase.Ended() {
		status.Completed = w.agent.Clock.Now()
	}
	if err := w.write(ctx, status, client.MergeFrom(w.object)); err != nil {
		return fmt.Errorf("%w: %w", errStatusNotWritten, err)
	}
	return nil
}

func (w *work) write(ctx context.Context, status checkpointbackup.Status, patch client.Patch) error {
	next := w.object.DeepCopy()
	before, _ := next.Object["status"].(map[string]any)
	told := checkpointbackup.EncodeStatus(status)
	for key, value := range before {
		// Another agent's own fields stay; the images of an earlier time do not.
		if _, ok := told[key]; !ok && !ownField[key] {
			told[key] = value
		}
	}
	if files := w.filesStatus(status.Phase); len(files) > 0 {
		told["checkpointFiles"] = files
	}
	next.Object["status"] = told
	if err := w.agent.Client.Status().Patch(ctx, next, patch, owner); err != nil {
		return fmt.Errorf("write the status of CheckpointBackup %s: %w", w.backup.Key, err)
	}
	w.object = next
	return nil
}

// ownField are the fields of the status that say nothing after the phase that they were written in. lastCheckpointTime is not among
// them: when the last one ended stays known while the next one runs, as others expect.
var ownField = map[string]bool{
	"phase": true, "message": true, "containers": true, "builtImages": true, "completionTime": true, "checkpointFiles": true,
}

func locked(object *unstructured.Unstructured) client.Patch {
	return client.MergeFromWithOptions(object.DeepCopy(), client.MergeFromWithOptimisticLock{})
}

func (w *work) filesStatus(phase checkpointbackup.Phase) []any {
	var files []any
	if phase.Ended() {
		return nil
	}
	for _, container := range w.pod.Spec.Containers {
		if file, ok := w.files[container.Name]; ok {
			files = append(files, map[string]any{
				"containerName": container.Name, "filePath": file.name, "checkpointTime": file.at.UTC().Format(time.RFC3339),
			})
		}
	}
	return files
}
