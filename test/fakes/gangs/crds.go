// Package gangs has the kinds of the gang schedulers and queues that TrainingJobs work with, for tests. They come from the
// Go modules of these projects, so that nothing of theirs is kept in this repository.
package gangs

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
)

// The modules, in the versions that the tests are made for. Kueue's stands in hack/kueue/go.mod, from which its manager is
// built.
const (
	volcano          = "volcano.sh/volcano@v1.14.1"
	schedulerPlugins = "sigs.k8s.io/scheduler-plugins@v0.34.7"
	kueue            = "sigs.k8s.io/kueue"
)

// Volcano is the file of Volcano's PodGroup.
func Volcano() (string, error) {
	return find("", volcano, "config/crd/volcano/bases/scheduling.volcano.sh_podgroups.yaml")
}

// Coscheduling is the file of scheduler-plugins' PodGroup.
func Coscheduling() (string, error) {
	return find("", schedulerPlugins, "config/crd/bases/scheduling.x-k8s.io_podgroups.yaml")
}

// Kueue is the folder of Kueue's kinds. The argument is the root of this repository.
func Kueue(root string) (string, error) {
	return find(filepath.Join(root, "hack", "kueue"), kueue, "config/components/crd/bases")
}

// find is the path of something in a module, which is downloaded if it is not there. A module without a version has the one
// that go.mod in the folder says.
func find(folder, module, name string) (string, error) {
	download := exec.Command("go", "mod", "download", "-json", module)
	download.Dir = folder
	text, err := download.Output()
	if ended := (*exec.ExitError)(nil); errors.As(err, &ended) {
		err = fmt.Errorf("%w: %s", err, ended.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("download %s: %w", module, err)
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal(text, &downloaded); err != nil {
		return "", fmt.Errorf("read where %s is: %w", module, err)
	}
	return filepath.Join(downloaded.Dir, filepath.FromSlash(name)), nil
}
