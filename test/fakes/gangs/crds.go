// Package gangs has the kinds of the gang schedulers and queues that TrainingJobs work with, for tests. They come from the
// Go modules of these projects, so that nothing of theirs is kept in this repository.
package gangs

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
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
	return file(volcano, "config/crd/volcano/bases/scheduling.volcano.sh_podgroups.yaml")
}

// Coscheduling is the file of scheduler-plugins' PodGroup.
func Coscheduling() (string, error) {
	return file(schedulerPlugins, "config/crd/bases/scheduling.x-k8s.io_podgroups.yaml")
}

// Kueue is the folder of Kueue's kinds. The argument is the root of this repository.
func Kueue(root string) (string, error) {
	list := exec.Command("go", "list", "-C", filepath.Join(root, "hack", "kueue"), "-m", "-f", "{{.Dir}}", kueue)
	folder, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("find the module of Kueue: %w", explain(err))
	}
	if strings.TrimSpace(string(folder)) == "" {
		download := exec.Command("go", "mod", "download", kueue)
		download.Dir = filepath.Join(root, "hack", "kueue")
		if _, err := download.Output(); err != nil {
			return "", fmt.Errorf("download the module of Kueue: %w", explain(err))
		}
		return Kueue(root)
	}
	return filepath.Join(strings.TrimSpace(string(folder)), "config", "components", "crd", "bases"), nil
}

// file is the path of a file in a module, which is downloaded if it is not there.
func file(module, name string) (string, error) {
	text, err := exec.Command("go", "mod", "download", "-json", module).Output()
	if err != nil {
		return "", fmt.Errorf("download %s: %w", module, explain(err))
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal(text, &downloaded); err != nil {
		return "", fmt.Errorf("read where %s is: %w", module, err)
	}
	return filepath.Join(downloaded.Dir, filepath.FromSlash(name)), nil
}

// explain adds what a program said to the error of its end.
func explain(err error) error {
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return fmt.Errorf("%w: %s", err, ended.Stderr)
	}
	return err
}
