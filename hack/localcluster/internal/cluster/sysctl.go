package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/host"
)

// changedSysctls are the kernel settings that the cluster changes: the first for its network, the
// others are changed by the kubelet.
var changedSysctls = []string{
	"net.ipv4.ip_forward",
	"vm.overcommit_memory", "vm.panic_on_oom",
	"kernel.panic", "kernel.panic_on_oops",
	"kernel.keys.root_maxkeys", "kernel.keys.root_maxbytes",
	"net.ipv4.conf.all.route_localnet",
}

// saveSysctls writes the present values to file, once: after a crash the file still holds the values
// from before the cluster.
func saveSysctls(file string) error {
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	values := map[string]string{}
	for _, name := range changedSysctls {
		if content, err := os.ReadFile(sysctlPath(name)); err == nil {
			values[name] = strings.TrimSpace(string(content))
		}
	}
	return host.SaveJSON(file, values)
}

// restoreSysctls sets the values that saveSysctls wrote to file, and forgets them.
func restoreSysctls(file string) error {
	values := map[string]string{}
	if found, err := host.LoadJSON(file, &values); err != nil || !found {
		return err
	}
	var problems []error
	for name, value := range values {
		problems = append(problems, writeSysctl(name, value))
	}
	problems = append(problems, os.Remove(file))
	return errors.Join(problems...)
}

// writeSysctl sets a kernel setting if it has another value.
func writeSysctl(name, value string) error {
	if now, err := os.ReadFile(sysctlPath(name)); err == nil && strings.TrimSpace(string(now)) == value {
		return nil
	}
	if err := os.WriteFile(sysctlPath(name), []byte(value), 0o644); err != nil {
		return fmt.Errorf("set %s=%s: %w", name, value, err)
	}
	return nil
}

func sysctlPath(name string) string {
	return filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
}
