// Package containercheckpoint is the built-in checkpoint agent. It serves the CheckpointBackups of the pods on its node, unless
// another agent does: the kubelet has the container runtime and CRIU write down the memory of a running container, and the
// agent makes an image of that and pushes it. A container that is started from this image goes on where the other was.
//
// The agent may end at any moment. What it has begun it knows by an annotation (Claim) and by the files that the status
// names; it takes that up again when it is back.
package containercheckpoint

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/internal/redact"
)

// Settings of an agent.
type Settings struct {
	// Node is the name of the node whose pods it serves.
	Node string
	// Yield is how long another agent may come first.
	Yield time.Duration
	// Concurrency is the number of pods that are checkpointed at once.
	Concurrency int
	// Directory is where the kubelet leaves its archives.
	Directory string
	// Programs is where the node's /usr is, to look for CRIU's plugins.
	Programs string
	// FreeSpace is how many bytes a checkpoint must leave free in Directory before it begins.
	FreeSpace uint64
	// PushTimeout is how long one image may take to be pushed.
	PushTimeout time.Duration
	// Insecure are the registries that may be spoken to without encryption.
	Insecure Insecure
}

// Agent serves CheckpointBackups.
type Agent struct {
	Settings

	// Client reads pods from a cache that has those of the node.
	Client client.Client
	// Direct reads from the API server.
	Direct client.Reader
	// Backups are the CheckpointBackups.
	Backups *checkpointbackup.Client
	// Kubelet takes checkpoints.
	Kubelet Kubelet
	Clock   clock.PassiveClock

	// busy has the pods that are being checkpointed: CRIU cannot take two checkpoints of a process at once.
	busy sync.Map
}

// again is when to look at a pod again that another checkpoint keeps busy.
const again = time.Second

// SetupWithManager registers the agent's controller.
func (a *Agent) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("container-checkpoint-agent").
		// Requests are CheckpointBackups; a pod that starts or ends brings those that ask for it.
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(a.backupsOf)).
		WatchesRawSource(a.Backups.Source(&handler.EnqueueRequestForObject{}, nil)).
		WithOptions(controller.Options{MaxConcurrentReconciles: a.Concurrency}).
		Complete(a)
}

func (a *Agent) backupsOf(ctx context.Context, pod client.Object) []reconcile.Request {
	backups, err := a.Backups.List(ctx, pod.GetNamespace(), nil)
	if err != nil {
		if !errors.Is(err, checkpointbackup.ErrNotServed) {
			log.FromContext(ctx).Error(err, "List the CheckpointBackups of a pod", "pod", pod.GetName())
		}
		return nil
	}
	var requests []reconcile.Request
	for _, b := range backups {
		if b.Spec.Pod.Name == pod.GetName() {
			requests = append(requests, reconcile.Request{NamespacedName: b.Key})
		}
	}
	return requests
}

// Reconcile looks at one CheckpointBackup and does what there is to do, which may take minutes.
func (a *Agent) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	o, err := a.observe(ctx, request.NamespacedName, nil)
	if err != nil {
		return ctrl.Result{}, ignoreGone(err)
	}
	if d := plan(o); d.claim == (claim{}) {
		return ctrl.Result{RequeueAfter: d.after}, nil
	}
	if o.pod != nil {
		pod := client.ObjectKeyFromObject(o.pod)
		if _, busy := a.busy.LoadOrStore(pod, true); busy {
			return ctrl.Result{RequeueAfter: again}, nil
		}
		defer a.busy.Delete(pod)
	}
	// The cache may lag behind what was written last.
	o, err = a.observe(ctx, request.NamespacedName, a.Direct)
	if err != nil {
		return ctrl.Result{}, ignoreGone(err)
	}
	d := plan(o)
	w := &work{agent: a, backup: o.backup, pod: o.pod, object: o.object}
	switch {
	case d.message != "":
		err = w.refuse(ctx, d.claim, d.message)
	case d.claim != claim{}:
		err = w.run(ctx, d.claim)
	}
	if apierrors.IsConflict(err) {
		// Another agent came first, or it was changed: look again.
		return ctrl.Result{RequeueAfter: again}, nil
	}
	return ctrl.Result{RequeueAfter: d.after}, ignoreGone(err)
}

func ignoreGone(err error) error {
	if errors.Is(err, checkpointbackup.ErrNotServed) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (a *Agent) observe(ctx context.Context, key types.NamespacedName, reader client.Reader) (observed, error) {
	object, err := a.Backups.Get(ctx, reader, key)
	if err != nil {
		return observed{}, err
	}
	o := observed{
		now: a.Clock.Now(), node: a.Node, insecure: a.Insecure, yield: a.Yield, object: object,
		backup: checkpointbackup.Decode(object), claim: readClaim(object.GetAnnotations()),
	}
	pod := &corev1.Pod{}
	err = a.Client.Get(ctx, o.backup.Spec.Pod, pod)
	if client.IgnoreNotFound(err) != nil {
		return observed{}, fmt.Errorf("read pod %s: %w", o.backup.Spec.Pod, err)
	}
	if err == nil && pod.Spec.NodeName == a.Node {
		o.pod = pod
		o.graphics = graphics(o.backup, pod, a.Programs, a.Node)
	}
	return o, nil
}

// messageOf is a text for a status: without secrets, and cut where it gets too long.
func messageOf(text string) string {
	text = redact.Text(text)
	if longest := 2000; len(text) > longest {
		text = text[:longest] + " ..."
	}
	return text
}
