package chaos

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
)

// history is what befell the pods of jobs, as their nodes, Kubernetes and their users know it. The counts in statuses are compared with it.
type history struct {
	mu       sync.Mutex
	outcomes map[attempt]*outcome
}

func newHistory() *history { return &history{outcomes: map[attempt]*outcome{}} }

// forget begins again for the next seed.
func (h *history) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.outcomes)
}

// attempt is one start of the pods of a job: the Job that owns them, or the AIJob with the number of its try.
type attempt struct {
	owner types.UID
	try   string
}

func attemptOf(pod *corev1.Pod) attempt {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return attempt{owner.UID, pod.Labels[aiplatformv1alpha1.LabelAttempt]}
	}
	return attempt{owner: pod.UID}
}

// outcome is what befell the pods of an attempt.
type outcome struct {
	// failures are programs that failed by themselves, and their node has told so. Of the untold it has not: the pod is deleted
	// meanwhile, or the node died.
	failures, untold map[types.UID]bool
	// left is how many programs ended because another of the attempt was gone.
	left int
	// losses are pods that were evicted, refused or deleted.
	losses map[types.UID]bool
	// succeeded are the places of programs that ended with exit code 0, whether their nodes have told so or not.
	succeeded map[string]bool
	// deaths of nodes under a program.
	deaths []*death
	// open says that its end may be counted either way: the queue evicted the job meanwhile, or a node of it was to be taken back, or lived
	// and was taken for dead.
	open bool
}

// death of a node. It ends when the node returns.
type death struct{ began, ended time.Time }

// ofAttempt lets something befall an attempt.
func (h *history) ofAttempt(of attempt, change func(*outcome)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.outcomes[of]
	if f == nil {
		f = &outcome{
			failures: map[types.UID]bool{}, untold: map[types.UID]bool{}, losses: map[types.UID]bool{}, succeeded: map[string]bool{},
		}
		h.outcomes[of] = f
	}
	change(f)
}

func (h *history) lost(pod *corev1.Pod) {
	h.ofAttempt(attemptOf(pod), func(f *outcome) { f.losses[pod.UID] = true })
}

// ends is the end of a death.
func (h *history) ends(d *death) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d.ended = time.Now()
}

// endOf is when a death ended; zero while it lasts.
func (h *history) endOf(d *death) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return d.ended
}

// hasSucceeded says whether a program ended with exit code 0 that had a place in an attempt.
func (h *history) hasSucceeded(of attempt, place string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.outcomes[of]
	return f != nil && f.succeeded[place]
}

// anySucceeded says whether a program of an attempt ended with exit code 0.
func (h *history) anySucceeded(of attempt) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.outcomes[of]
	return f != nil && len(f.succeeded) > 0
}

// problems is how many programs of an attempt failed or were lost.
func (h *history) problems(of attempt) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.outcomes[of]
	if f == nil {
		return 0
	}
	return len(f.failures) + len(f.untold) + len(f.losses) + len(f.deaths)
}

// mustCount says how the end of an attempt is to be counted.
type mustCount int

const (
	asEither mustCount = iota
	asFailure
	asLoss
)

// judged says how the end of an attempt is to be counted for a job that ended at a time, and how many of its programs failed by themselves
// at most. Where both befell it, either is right: which of them ended the attempt depends on what was seen first, and a pod that is
// stopped after the end of another may be lost as well. The same is true of a node whose death was not to be seen before the job ended: those whom
// a program there left alone are all that is known of it.
func (h *history) judged(of attempt, jobEnded time.Time) (count mustCount, failed int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.outcomes[of]
	if f == nil {
		return asLoss, 0 // no program failed
	}
	lost, open := len(f.losses) > 0, len(f.untold) > 0 || f.open
	for _, d := range f.deaths {
		if d.wasSeenBefore(jobEnded) {
			lost = true
		} else {
			open = true
		}
	}
	failed = len(f.failures) + len(f.untold)
	if open { // of what made them end nothing may have been seen
		failed += f.left
	}
	switch {
	case open, lost && failed > 0:
		return asEither, failed
	case failed > 0:
		return asFailure, failed
	}
	return asLoss, 0
}

const (
	// nodeSilent is how long a node is silent at most before Kubernetes says that it is not ready, on a busy machine.
	nodeSilent = graceOfMany + 5*time.Second
	// settling is how long the manager takes at most to look at a node again, also when it has to be started first.
	settling = 20 * time.Second
)

func (d *death) wasSeenBefore(at time.Time) bool {
	seen := d.began.Add(nodeSilent)
	if !d.ended.IsZero() && d.ended.Before(seen) {
		seen = d.ended
	}
	return seen.Add(settling).Before(at)
}
