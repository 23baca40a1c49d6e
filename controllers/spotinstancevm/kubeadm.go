package spotinstancevm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/nodejoin"
)

// KubeadmJoining joins instances by kubeadm.
type KubeadmJoining struct {
	// Client writes tokens and keys. It must not be one that reads its writes from a cache: that would become a cache of all
	// Secrets. Direct reads them, and the Secrets of users, from the API server.
	Client client.Client
	Direct client.Reader
	// Namespace of the operator, for the keys that it makes.
	Namespace string
}

var _ Joining = (*KubeadmJoining)(nil)

// tokenSpare is how much longer than the time to join a token is good for, so that no instance fails for seconds.
const tokenSpare = 5 * time.Minute

// Metadata implements Joining.
func (k *KubeadmJoining) Metadata(ctx context.Context, vm *spotv1alpha1.SpotInstanceVM, name string) (map[string]string, error) {
	join, err := k.joinOf(ctx, vm, name)
	if err != nil {
		return nil, err
	}
	var key *nodejoin.KeyPair
	if vm.Spec.KubeadmJoinConfig.Method == spotv1alpha1.JoinBySSH {
		if key, err = k.keyOf(ctx, vm, name); err != nil {
			return nil, err
		}
	}
	metadata, err := nodejoin.Metadata(join, &vm.Spec, key)
	if err != nil {
		return nil, &child.Refusal{Reason: reasons.InvalidSpec, Message: err.Error()}
	}
	return metadata, nil
}

// joinOf is all that an instance needs to join. A token is made unless the user gave one.
func (k *KubeadmJoining) joinOf(ctx context.Context, vm *spotv1alpha1.SpotInstanceVM, name string) (nodejoin.Join, error) {
	join := nodejoin.Join{Instance: nodejoin.Instance{
		Name: name, VM: client.ObjectKeyFromObject(vm), Taints: []corev1.Taint{{Key: spotv1alpha1.TaintUnverified, Effect: corev1.TaintEffectNoSchedule}},
	}}
	var err error
	if join.Cluster, err = nodejoin.Discover(ctx, k.Direct, vm.Namespace, vm.Spec.KubeadmJoinConfig); err != nil {
		return join, explained(err)
	}
	if join.Cluster.Token == "" {
		tokens := nodejoin.Tokens{Client: k.Client, Reader: k.Direct}
		join.Token, err = tokens.Make(ctx, join.Instance, nodejoin.Timeout(&vm.Spec)+tokenSpare)
	}
	return join, explained(err)
}

func (k *KubeadmJoining) keyOf(ctx context.Context, vm *spotv1alpha1.SpotInstanceVM, name string) (*nodejoin.KeyPair, error) {
	if ssh := vm.Spec.KubeadmJoinConfig.SSH; ssh != nil && ssh.PrivateKeySecretRef != nil {
		secret, t := secretIn(vm.Namespace, ssh.PrivateKeySecretRef, "spec.kubeadmJoinConfig.ssh.privateKeySecretRef")
		if t.exists() {
			return nil, &child.Refusal{Reason: t.reason, Message: t.message}
		}
		key, err := nodejoin.KeyFromSecret(ctx, k.Direct, vm.Namespace, secret)
		return key, explained(err)
	}
	keys := nodejoin.Keys{Client: k.Client, Reader: k.Direct, Namespace: k.Namespace}
	return keys.Make(ctx, nodejoin.Instance{Name: name, VM: client.ObjectKeyFromObject(vm)})
}

// explained tells what an administrator must allow from failures that pass.
func explained(err error) error {
	if apierrors.IsForbidden(err) {
		return &child.Refusal{Reason: reasons.PermissionDenied, Message: err.Error()}
	}
	return err
}

// Login implements Joining.
func (k *KubeadmJoining) Login(
	ctx context.Context, vm *spotv1alpha1.SpotInstanceVM, instance spotv1alpha1.ProvisionedInstance, provider cloud.Provider,
) error {
	hostKeys, err := provider.HostKeys(ctx, instance.Zone, cmp.Or(instance.InstanceID, instance.Name))
	if err != nil {
		return fmt.Errorf("read the host keys of instance %s: %w", instance.Name, err)
	}
	if len(hostKeys) == 0 {
		return fmt.Errorf("instance %s has not published its host keys yet: its image needs the guest agent", instance.Name)
	}
	join, err := k.joinOf(ctx, vm, instance.Name)
	if err != nil {
		return err
	}
	key, err := k.keyOf(ctx, vm, instance.Name)
	if err != nil {
		return err
	}
	port := cmp.Or(int(ptr.Deref(vm.Spec.KubeadmJoinConfig.SSH, spotv1alpha1.SSH{}).Port), 22)
	// Which of its addresses the operator reaches depends on where both are.
	for _, address := range []string{instance.InternalIP, instance.ExternalIP} {
		if address == "" {
			continue
		}
		err = nodejoin.OverSSH(ctx, nodejoin.SSH{
			Address: net.JoinHostPort(address, strconv.Itoa(port)), User: nodejoin.User(&vm.Spec), Key: key, HostKeys: hostKeys,
		}, join, &vm.Spec)
		failed := (*nodejoin.SSHError)(nil)
		if !errors.As(err, &failed) || failed.Stage != nodejoin.StageConnect {
			return err
		}
	}
	if err == nil {
		return fmt.Errorf("instance %s has no address yet", instance.Name)
	}
	return err
}

// Revoke implements Joining.
func (k *KubeadmJoining) Revoke(ctx context.Context, vm *spotv1alpha1.SpotInstanceVM, name string) error {
	instance := nodejoin.Instance{Name: name, VM: client.ObjectKeyFromObject(vm)}
	var failures []error
	if vm.Spec.KubeadmJoinConfig.TokenSecretRef == "" {
		failures = append(failures, nodejoin.Tokens{Client: k.Client, Reader: k.Direct}.Revoke(ctx, instance))
	}
	// Whatever the method is now: it may have been SSH when the instance was made.
	failures = append(failures, nodejoin.Keys{Client: k.Client, Reader: k.Direct, Namespace: k.Namespace}.Remove(ctx, instance))
	return errors.Join(failures...)
}
