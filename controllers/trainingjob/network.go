package trainingjob

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/podend"
	"github.com/dcnlab/spot-training-operator/internal/training/preflight"
)

// mostPairs is how many pairs of workers a message names.
const mostPairs = 3

// networkView is what is known of the check of the network.
type networkView struct {
	// checking says that a worker checks, and since when all do.
	checking bool
	since    time.Time
	// reached says that all workers have reached one another.
	reached bool
	// reason and message say which do not; empty when that is not known.
	reason, message string
}

// networkCauses are the reasons and the remedies of what keeps workers from reaching one another.
var networkCauses = map[preflight.Cause]struct{ reason, remedy string }{
	preflight.NotResolved: {
		reasons.PeerNotResolved, "see whether the cluster's DNS runs and whether a NetworkPolicy keeps the pods from it",
	},
	preflight.NoAnswer: {
		reasons.PeerUnreachable, "let the job's pods connect to one another at all ports, in NetworkPolicies and in firewalls between the nodes",
	},
	preflight.Refused: {
		reasons.PeerRefused, "see whether a service mesh, a NetworkPolicy or a program of the node takes the port",
	},
}

// networkURL is where replica 0 is asked which workers do not reach one another; empty when it does not check that.
func (o *observed) networkURL(pods []*corev1.Pod) string {
	pod := masterPod(pods)
	if pod == nil || pod.Status.PodIP == "" || podend.InitState(pod, preflight.Container).Running == nil {
		return ""
	}
	return o.agentAddress(pod)
}

// viewNetwork puts together what the pods and the last report of replica 0 say.
func (o *observed) viewNetwork(pods []*corev1.Pod) networkView {
	var v networkView
	ended, checking := 0, map[int]*corev1.Pod{}
	for _, pod := range pods {
		state := podend.InitState(pod, preflight.Container)
		if of, ok := indexOf(pod); ok && state.Running != nil {
			v.checking, checking[int(of)] = true, pod
			if state.Running.StartedAt.After(v.since) {
				v.since = state.Running.StartedAt.Time
			}
		}
		if state.Terminated != nil && state.Terminated.ExitCode == 0 {
			ended++
		}
	}
	v.reached = ended > 0 && ended >= int(ptr.Deref(o.workers.Spec.Completions, 0))
	if url := o.networkURL(pods); url == "" || o.read.Network != url || o.read.Reached == nil {
		return v
	}
	var named []string
	remedy, more := "", o.read.Reached.More
	for _, pair := range o.read.Reached.Pairs {
		from, to := checking[pair.From], checking[pair.To]
		cause, known := networkCauses[pair.Cause]
		switch {
		case from == nil || to == nil || !known: // it has not begun yet, or ends
		case len(named) == mostPairs:
			more++
		default:
			if v.reason == "" {
				v.reason, remedy = cause.reason, cause.remedy
			}
			named = append(named, fmt.Sprintf("worker %d (%s) does not reach worker %d (%s): %s",
				pair.From, podend.InWords(from), pair.To, podend.InWords(to), pair.Detail))
		}
	}
	if v.reason == "" {
		return v
	}
	if more > 0 {
		named = append(named, fmt.Sprintf("and %d more", more))
	}
	v.message = quoted(o.job, strings.Join(named, "; ")) + "; " + remedy
	return v
}

// followNetwork brings what the workers found into the status, and has replica 0 asked while they check.
func (p *planner) followNetwork(pods []*corev1.Pod) {
	p.network = p.networkURL(pods)
	switch v := p.viewNetwork(pods); {
	case v.reached:
		p.condition(reasons.ConditionNetworkReady, true, reasons.PeersReachable, "each worker reaches every other")
	case v.reason != "":
		p.condition(reasons.ConditionNetworkReady, false, v.reason, v.message)
	}
}

// checkingNetwork says what workers wait for that check the network; empty when none does.
func (o *observed) checkingNetwork(pods []*corev1.Pod) (reason, message string) {
	switch v := o.viewNetwork(pods); {
	case !v.checking:
		return "", ""
	case v.reason != "":
		return v.reason, v.message
	}
	return reasons.WorkersStarting, "the workers check that they reach one another"
}

// networkDelay is what keeps workers from one another; nil when nothing is known to.
func (o *observed) networkDelay(pods []*corev1.Pod) *delay {
	v := o.viewNetwork(pods)
	if v.reason == "" {
		return nil
	}
	since := o.now
	if told := networkCondition(&o.job.Status); told != nil && told.Status == metav1.ConditionFalse {
		since = told.LastTransitionTime.Time
	}
	if v.since.After(since) { // the condition is of an earlier attempt
		since = v.since
	}
	return &delay{eviction{v.reason, v.message, true}, since}
}

func networkCondition(status *mlv1.TrainingJobStatus) *metav1.Condition {
	return meta.FindStatusCondition(status.Conditions, reasons.ConditionNetworkReady)
}
