package nodejoin

import (
	"cmp"
	"fmt"

	"k8s.io/utils/ptr"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// Keys of an instance's metadata, as Google's guest agent reads them.
const (
	metadataStartupScript   = "startup-script"
	metadataSSHKeys         = "ssh-keys"
	metadataGuestAttributes = "enable-guest-attributes"
	metadataOSLogin         = "enable-oslogin"
)

// DefaultUser is who logs in for method SSH when spec.kubeadmJoinConfig.ssh does not say.
const DefaultUser = "spot"

// Metadata is what an instance must be able to read of itself in order to join by the method of its SpotInstanceVM. key is
// the one that OverSSH will log in with; nil for method StartupScript.
func Metadata(join Join, spec *spotv1alpha1.SpotInstanceVMSpec, key *KeyPair) (map[string]string, error) {
	if spec.KubeadmJoinConfig.Method != spotv1alpha1.JoinBySSH {
		text, err := startupScript(join, spec)
		if err != nil {
			return nil, err
		}
		return map[string]string{metadataStartupScript: text}, nil
	}
	if key == nil {
		return nil, fmt.Errorf("instance %s: method SSH needs a key", join.Instance.Name)
	}
	user := User(spec)
	metadata := map[string]string{
		metadataSSHKeys: fmt.Sprintf("%s:%s %s", user, key.AuthorizedKey(), user),
		// Where the instance publishes its host keys.
		metadataGuestAttributes: "TRUE",
		// With OS Login, which a project may have on, the guest agent does not look at ssh-keys.
		metadataOSLogin: "FALSE",
	}
	if text := preparation(join, spec); text != "" {
		metadata[metadataStartupScript] = text
	}
	return metadata, nil
}

// User is who logs in for method SSH.
func User(spec *spotv1alpha1.SpotInstanceVMSpec) string {
	return cmp.Or(ptr.Deref(spec.KubeadmJoinConfig.SSH, spotv1alpha1.SSH{}).User, DefaultUser)
}
