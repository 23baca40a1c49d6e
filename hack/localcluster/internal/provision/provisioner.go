// Package provision makes volumes for claims of the default StorageClass: folders on this machine.
package provision

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

// HostPath provisions volumes of type hostPath below Root. Such a volume can be mounted by any number
// of pods for reading and writing, and takes no notice of the size that was asked for.
type HostPath struct{ Root string }

var _ controller.Provisioner = HostPath{}

// Run provisions for the StorageClasses that name provisioner, until ctx ends.
func Run(ctx context.Context, kubeconfig, provisioner, root string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 200, 400
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	controller.NewProvisionController(ctx, client, provisioner, HostPath{Root: root},
		controller.LeaderElection(false),
		controller.Threadiness(4),
		controller.ExponentialBackOffOnError(true),
		controller.CreateProvisionedPVInterval(time.Second),
		controller.MetricsPort(0),
	).Run(ctx)
	return nil
}

// Provision makes the folder of a new volume and describes the volume.
func (h HostPath) Provision(_ context.Context, options controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	path := filepath.Join(h.Root, options.PVName)
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, controller.ProvisioningFinished, fmt.Errorf("make folder of volume %s: %w", options.PVName, err)
	}
	// Pods of any user may write; the mode given to MkdirAll is cut by the umask.
	if err := os.Chmod(path, 0o777); err != nil {
		return nil, controller.ProvisioningFinished, fmt.Errorf("open folder of volume %s to all: %w", options.PVName, err)
	}
	reclaim := corev1.PersistentVolumeReclaimDelete
	if options.StorageClass.ReclaimPolicy != nil {
		reclaim = *options.StorageClass.ReclaimPolicy
	}
	kind := corev1.HostPathDirectory
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: options.PVName},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: reclaim,
			AccessModes:                   options.PVC.Spec.AccessModes,
			MountOptions:                  options.StorageClass.MountOptions,
			VolumeMode:                    options.PVC.Spec.VolumeMode,
			Capacity: corev1.ResourceList{
				corev1.ResourceStorage: options.PVC.Spec.Resources.Requests[corev1.ResourceStorage],
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind},
			},
		},
	}, controller.ProvisioningFinished, nil
}

// Delete removes the folder of a released volume. It refuses a path outside Root, whatever the volume says.
func (h HostPath) Delete(_ context.Context, volume *corev1.PersistentVolume) error {
	source := volume.Spec.HostPath
	if source == nil || source.Path != filepath.Join(h.Root, volume.Name) {
		return fmt.Errorf("volume %s is not one of the folders below %s", volume.Name, h.Root)
	}
	return os.RemoveAll(source.Path)
}
