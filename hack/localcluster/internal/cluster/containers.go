package cluster

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dcnlab/spot-training-operator/hack/localcluster/internal/process"
)

// cgroupRoot is where control groups are mounted, in one folder (v2) or one for each controller (v1).
const cgroupRoot = "/sys/fs/cgroup"

// endContainers ends all containers that containerd runs for this cluster, and their shims. It works
// from the containers' own files, so that it also works when containerd itself is dead.
func endContainers(layout Layout) {
	for _, group := range containerCgroups(layout.run("containerd", "io.containerd.runtime.v2.task")) {
		for range 50 { // a group may still be forking
			pids := cgroupProcesses(group)
			if len(pids) == 0 {
				break
			}
			for _, pid := range pids {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// endLeftovers kills every process with this cluster's mark except the caller: shims, and processes that were started just
// before a crash.
func endLeftovers(layout Layout) {
	for _, id := range process.Marked(layout.State) {
		if id.PID != os.Getpid() {
			process.Kill(id)
		}
	}
}

// containerCgroups returns the control groups of the containers whose bundles are below tasks, as
// paths that start at a controller's root.
func containerCgroups(tasks string) []string {
	bundles, _ := filepath.Glob(filepath.Join(tasks, "*", "*", "config.json"))
	var groups []string
	for _, file := range bundles {
		content, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		var spec struct {
			Linux struct {
				CgroupsPath string `json:"cgroupsPath"`
			} `json:"linux"`
		}
		// An empty path would be the root, with every process of the machine in it.
		if json.Unmarshal(content, &spec) == nil && strings.Trim(spec.Linux.CgroupsPath, "/") != "" {
			groups = append(groups, filepath.Clean("/"+spec.Linux.CgroupsPath))
		}
	}
	return groups
}

// cgroupProcesses returns the ids of the processes in a control group and in those below it, in whichever hierarchy it is.
func cgroupProcesses(group string) []int {
	var pids []int
	for _, hierarchy := range hierarchies() {
		_ = filepath.WalkDir(filepath.Join(hierarchy, group), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.Name() != "cgroup.procs" {
				return nil
			}
			content, _ := os.ReadFile(path)
			for field := range strings.FieldsSeq(string(content)) {
				// Zero stands for a process of another PID namespace, which cannot be signalled by number.
				if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
					pids = append(pids, pid)
				}
			}
			return nil
		})
	}
	return pids
}

// removeCgroup removes a control group, with those below it, from whichever hierarchy it is in. A group that still holds processes, of
// another kubelet for example, cannot be removed and stays.
func removeCgroup(group string) {
	for _, hierarchy := range hierarchies() {
		var dirs []string
		_ = filepath.WalkDir(filepath.Join(hierarchy, group), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for _, dir := range slices.Backward(dirs) {
			_ = syscall.Rmdir(dir)
		}
	}
}

func hierarchies() []string {
	found := []string{cgroupRoot}
	entries, err := os.ReadDir(cgroupRoot)
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		if entry.IsDir() {
			found = append(found, filepath.Join(cgroupRoot, entry.Name()))
		}
	}
	return found
}

// shimSockets is where containerd puts its shims' sockets, with no way to choose another place.
const shimSockets = "/run/containerd/s"

func removeShimSockets() {
	sockets, _ := filepath.Glob(filepath.Join(shimSockets, "*"))
	for _, socket := range sockets {
		removeDeadSocket(socket)
	}
	_ = os.Remove(shimSockets) // fails when others use it, as intended
	_ = os.Remove(filepath.Dir(shimSockets))
}

func removeDeadSocket(path string) {
	connection, err := net.Dial("unix", path)
	if err == nil {
		connection.Close()
	} else if errors.Is(err, syscall.ECONNREFUSED) {
		_ = os.Remove(path)
	}
}

// removeKubeletTraces removes what the kubelet creates outside its own folder: a link for each container's log, and the folder
// of device plugins' sockets.
func removeKubeletTraces(layout Layout) {
	links, _ := filepath.Glob("/var/log/containers/*.log")
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, layout.State+"/") {
			_ = os.Remove(link)
		}
	}
	removeDeadSocket("/var/lib/kubelet/device-plugins/kubelet.sock")
	// Removing a folder fails when something else uses it, as intended.
	_ = os.Remove("/var/log/containers")
	_ = os.Remove("/var/lib/kubelet/device-plugins")
	_ = os.Remove("/var/lib/kubelet")
}
