package workerpool

import (
	"context"
	"fmt"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ManagerName is the name of the manager's ServiceAccount, whose token the manager asks for.
const ManagerName = "spot-training-operator-controller-manager"

// tokens asks the API server for tokens of the manager's own ServiceAccount that are good for the job service only, so that what the
// manager may do in the cluster is never sent to it.
type tokens struct {
	client    client.SubResourceClientConstructor
	namespace string
	clock     clock.PassiveClock

	lock  sync.Mutex
	token string
	renew time.Time
}

// get returns a token with at least a fifth of its lifetime left.
func (t *tokens) get(ctx context.Context) (string, error) {
	t.lock.Lock()
	defer t.lock.Unlock()
	if t.token != "" && t.clock.Now().Before(t.renew) {
		return t.token, nil
	}
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name = t.namespace, ManagerName
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{Audience}, ExpirationSeconds: ptr.To[int64](tokenSeconds),
	}}
	if err := t.client.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("ask for a token of ServiceAccount %s/%s: %w", t.namespace, ManagerName, err)
	}
	now := t.clock.Now()
	t.token, t.renew = request.Status.Token, now.Add(request.Status.ExpirationTimestamp.Sub(now)*4/5)
	return t.token, nil
}
