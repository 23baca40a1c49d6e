//go:build olm

package olm

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

const (
	// pulseName is what belongs to the pulse is called.
	pulseName = "pulse"
	// beat is the time between two changes of the pulse's job.
	beat = 500 * time.Millisecond
	// metricsPort of the manager.
	metricsPort = "8443"
)

// pulse changes a job that does nothing twice a second and reads the counter of reconciliations from the metrics of all
// manager pods. Each change calls for one reconciliation, so the longest time without is a gap in the operator's work.
type pulse struct {
	token   string
	client  http.Client
	stop    context.CancelFunc
	stopped chan struct{}

	mutex sync.Mutex
	// counted is the last count of each pod, moved the time at which one last went up, gap the longest time between.
	counted map[types.UID]float64
	moved   time.Time
	gap     time.Duration
}

// takePulse starts to take the pulse.
func takePulse(t *testing.T) *pulse {
	t.Helper()
	job := &mlv1.TrainingJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: userNamespace, Name: pulseName},
		Spec:       mlv1.TrainingJobSpec{Model: "cnn", Dataset: "digits", NumWorkers: 1, GPUsPerWorker: ptr.To[int32](0), Suspend: ptr.To(true)},
	}
	require.NoError(t, cluster.Create(t.Context(), job))
	ctx, stop := context.WithCancel(t.Context())
	p := &pulse{
		token: metricsToken(t), stop: stop, stopped: make(chan struct{}), counted: map[types.UID]float64{},
		// The certificate of the metrics is the manager's own; the token is worth nothing but reading metrics.
		client: http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}},
	}
	go func() {
		defer close(p.stopped)
		for ctx.Err() == nil {
			p.take(ctx, job)
			select {
			case <-ctx.Done():
			case <-time.After(beat):
			}
		}
	}()
	t.Cleanup(p.end)
	return p
}

// metricsToken is the token of a ServiceAccount that may read the metrics.
func metricsToken(t *testing.T) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: userNamespace, Name: pulseName}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "olm-e2e-" + pulseName}, Rules: []rbacv1.PolicyRule{
		{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}},
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
	}
	for _, object := range []client.Object{account, role, binding} {
		require.NoError(t, cluster.Create(t.Context(), object))
		t.Cleanup(func() { _ = cluster.Delete(context.WithoutCancel(t.Context()), object) })
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](3600)}}
	require.NoError(t, cluster.SubResource("token").Create(t.Context(), account, request))
	return request.Status.Token
}

// take makes one beat and reads the counters.
func (p *pulse) take(ctx context.Context, job *mlv1.TrainingJob) {
	change := fmt.Sprintf(`{"metadata":{"annotations":{"olm-e2e/beat":"%d"}}}`, time.Now().UnixMilli())
	_ = cluster.Patch(ctx, job.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(change)))
	var pods corev1.PodList
	if cluster.List(ctx, &pods, client.InNamespace(operatorNamespace), client.MatchingLabels{"control-plane": "controller-manager"}) != nil {
		return
	}
	for _, pod := range pods.Items {
		if count, err := p.reconciliations(ctx, pod.Status.PodIP); err == nil {
			p.count(pod.UID, count)
		}
	}
}

func (p *pulse) count(pod types.UID, count float64) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if count <= p.counted[pod] {
		return
	}
	p.counted[pod] = count
	now := time.Now()
	if !p.moved.IsZero() {
		p.gap = max(p.gap, now.Sub(p.moved))
	}
	p.moved = now
}

// reconciliations is a manager's own count of how often it has looked at the job.
func (p *pulse) reconciliations(ctx context.Context, address string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+net.JoinHostPort(address, metricsPort)+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+p.token)
	answer, err := p.client.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("the metrics answer %s", strconv.Itoa(answer.StatusCode))
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, metric := range families["trainingjob_reconciliation_total"].GetMetric() {
		for _, label := range metric.GetLabel() {
			if label.GetName() == "namespace" && label.GetValue() == userNamespace {
				sum += metric.GetCounter().GetValue()
			}
		}
	}
	return sum, nil
}

// longestGap is the longest time without a reconciliation since the last call.
func (p *pulse) longestGap() time.Duration {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	gap := max(p.gap, time.Since(p.moved))
	p.gap = 0
	return gap
}

func (p *pulse) end() {
	p.stop()
	<-p.stopped
}
