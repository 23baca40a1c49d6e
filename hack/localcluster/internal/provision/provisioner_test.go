package provision

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

func TestProvisionAndDelete(t *testing.T) {
	root := t.TempDir()
	retain := corev1.PersistentVolumeReclaimRetain
	volume, state, err := HostPath{Root: root}.Provision(context.Background(), controller.ProvisionOptions{
		StorageClass: &storagev1.StorageClass{ReclaimPolicy: &retain},
		PVName:       "pvc-1",
		PVC: &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		}},
	})
	if err != nil || state != controller.ProvisioningFinished {
		t.Fatalf("state %s, error %v", state, err)
	}
	if volume.Spec.PersistentVolumeReclaimPolicy != retain || volume.Spec.AccessModes[0] != corev1.ReadWriteMany {
		t.Errorf("volume %+v does not do as the class and the claim say", volume.Spec)
	}
	path := filepath.Join(root, "pvc-1")
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o777 || volume.Spec.HostPath.Path != path {
		t.Errorf("folder %v, error %v, path in the volume %s; want %s open to all", info, err, volume.Spec.HostPath.Path, path)
	}
	if err := (HostPath{Root: root}).Delete(context.Background(), volume); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("folder is still there: %v", err)
	}
}

func TestDeleteRefusesOtherFolders(t *testing.T) {
	root, other := t.TempDir(), t.TempDir()
	volume := func(source corev1.PersistentVolumeSource) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pvc-1"}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: source},
		}
	}
	for name, source := range map[string]corev1.PersistentVolumeSource{
		"another folder":  {HostPath: &corev1.HostPathVolumeSource{Path: other}},
		"the root itself": {HostPath: &corev1.HostPathVolumeSource{Path: root}},
		"no host path":    {},
	} {
		if err := (HostPath{Root: root}).Delete(context.Background(), volume(source)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, dir := range []string{root, other} {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("%s was removed", dir)
		}
	}
}
