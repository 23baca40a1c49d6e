package spot

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/webhook/review"
)

// vmChecks are the checks of SpotInstanceVMs.
type vmChecks struct{ Options }

func (vmChecks) kind() string                             { return "SpotInstanceVM" }
func (vmChecks) empty() *spotv1alpha1.SpotInstanceVM      { return &spotv1alpha1.SpotInstanceVM{} }
func (vmChecks) spec(vm *spotv1alpha1.SpotInstanceVM) any { return vm.Spec }

func vmSecrets(vm *spotv1alpha1.SpotInstanceVM) []secret {
	join := &vm.Spec.KubeadmJoinConfig
	list := []secret{{"spec.gcp.credentialsSecretRef", vm.Spec.GCP.CredentialsSecretRef, "no instance is created"}}
	if join.SSH != nil {
		list = append(list, secret{"spec.kubeadmJoinConfig.ssh.privateKeySecretRef", join.SSH.PrivateKeySecretRef, "no instance is created"})
	}
	return list
}

func (vmChecks) mistakes(vm *spotv1alpha1.SpotInstanceVM) []metav1.StatusCause {
	causes := elsewhere(vm.Namespace, vmSecrets(vm))
	if gpu := vm.Spec.GPU; gpu != nil {
		for _, machineType := range vm.Spec.GCP.AllMachineTypes() {
			if mistakes := gpuMistakes(gpu, machineType); len(mistakes) > 0 {
				causes = append(causes, mistakes...)
				break
			}
		}
	}
	return causes
}

func (vmChecks) hints(*spotv1alpha1.SpotInstanceVM) []string { return nil }

func (vmChecks) references(vm *spotv1alpha1.SpotInstanceVM) []review.Reference {
	list := lookedUp(vm.Namespace, vmSecrets(vm))
	if name := vm.Spec.KubeadmJoinConfig.TokenSecretRef; name != "" {
		list = append(list, review.Reference{
			Field: "spec.kubeadmJoinConfig.tokenSecretRef", Kind: review.Secret, Namespace: vm.Namespace, Name: name, Until: "no instance is created",
		})
	}
	return list
}

func (c vmChecks) ask(
	asker review.Asker, _ authenticationv1.UserInfo, vm *spotv1alpha1.SpotInstanceVM,
) ([]review.Question, func() ([]metav1.StatusCause, []string)) {
	var namespace corev1.Namespace
	question := review.Question{
		About: "whether the namespace may have spot instances", Needs: review.ToSee("get", vm.Namespace, vm.Namespace, corev1.SchemeGroupVersion.WithKind("Namespace")),
		Ask: func(ctx context.Context) error {
			return asker.Client.Get(ctx, client.ObjectKey{Name: vm.Namespace}, &namespace)
		},
	}
	return []review.Question{question}, func() (_ []metav1.StatusCause, warnings []string) {
		if namespace.Name == "" { // it was not asked for, or there was no answer
			return nil, nil
		}
		if why := c.NotAllowed(&namespace, vm); why != "" {
			warnings = append(warnings, why)
		}
		return nil, warnings
	}
}
