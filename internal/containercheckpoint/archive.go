package containercheckpoint

import (
	"archive/tar"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
)

// archive is a file that the kubelet wrote.
type archive struct {
	// name in the folder of checkpoints.
	name string
	at   time.Time
}

// mustHave are the files without which the container runtime restores nothing.
var mustHave = []string{"spec.dump", "config.dump", "status.dump"}

// recorded are the archives that the status of a CheckpointBackup names.
func recorded(object *unstructured.Unstructured) map[string]archive {
	files := map[string]archive{}
	var entries []struct{ ContainerName, FilePath, CheckpointTime string }
	checkpointbackup.ReadField(object, &entries, "status", "checkpointFiles")
	for _, entry := range entries {
		at, err := time.Parse(time.RFC3339, entry.CheckpointTime)
		if entry.ContainerName != "" && entry.FilePath != "" && err == nil {
			files[entry.ContainerName] = archive{name: filepath.Base(entry.FilePath), at: at}
		}
	}
	return files
}

// own leaves the archives that are of pods of this name and still there: who may write the status could name another's.
func (w *work) own(files map[string]archive) map[string]archive {
	maps.DeleteFunc(files, func(container string, file archive) bool {
		of, _, err := subjectOf(filepath.Join(w.agent.Directory, file.name))
		return err != nil || of != subject{w.backup.Key.Namespace, w.backup.Spec.Pod.Name, container}
	})
	return files
}

// current leaves those of the pod itself, and not of an earlier one of its name.
func (w *work) current(files map[string]archive) map[string]archive {
	maps.DeleteFunc(files, func(_ string, file archive) bool {
		_, uid, err := subjectOf(filepath.Join(w.agent.Directory, file.name))
		return err != nil || w.isOther(uid)
	})
	return files
}

// isOther says whether the UID in an archive is that of another pod. Old runtimes write none.
func (w *work) isOther(uid types.UID) bool { return uid != "" && uid != w.pod.UID }

// subject is what an archive is of. Its name does not say it: checkpoint-bert_a-b-c-... may be of container c of namespace a-b, or of
// container b-c of namespace a.
type subject struct{ namespace, pod, container string }

// subjectOf reads what the container runtime wrote into an archive of whose it is, and the UID of the pod.
func subjectOf(path string) (subject, types.UID, error) {
	file, err := os.Open(path)
	if err != nil {
		return subject{}, "", err
	}
	defer func() { _ = file.Close() }()
	for reader := tar.NewReader(file); ; {
		header, err := reader.Next()
		if err != nil {
			return subject{}, "", fmt.Errorf("look for spec.dump in %s: %w", filepath.Base(path), err)
		}
		if strings.TrimPrefix(header.Name, "./") != "spec.dump" {
			continue
		}
		var spec struct{ Annotations map[string]string }
		if err := json.NewDecoder(io.LimitReader(reader, maxSpecBytes)).Decode(&spec); err != nil {
			return subject{}, "", fmt.Errorf("read spec.dump of %s: %w", filepath.Base(path), err)
		}
		of := func(containerd, crio string) string {
			return cmp.Or(spec.Annotations[containerd], spec.Annotations[crio])
		}
		return subject{
			namespace: of("io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace"),
			pod:       of("io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"),
			container: of("io.kubernetes.cri.container-name", "io.kubernetes.container.name"),
		}, types.UID(of("io.kubernetes.cri.sandbox-uid", "io.kubernetes.pod.uid")), nil
	}
}

// maxSpecBytes is more than any specification of a container has.
const maxSpecBytes = 16 << 20

// checkArchive holds that a container's archive is of the pod, which may have been replaced meanwhile, and complete by its table of contents.
func (w *work) checkArchive(container string) error {
	file, err := os.Open(w.path(container))
	if err != nil {
		return fmt.Errorf("open the archive of the kubelet (the agent looks for it in its own mount of the kubelet's folder): %w", err)
	}
	defer func() { _ = file.Close() }()
	found := map[string]bool{}
	for reader := tar.NewReader(file); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the archive %s, which may be cut off: %w", filepath.Base(file.Name()), err)
		}
		found[strings.TrimPrefix(header.Name, "./")] = true
	}
	for _, name := range mustHave {
		if !found[name] {
			return fmt.Errorf("the archive %s has no %s, so that nothing could be restored from it", filepath.Base(file.Name()), name)
		}
	}
	if _, uid, err := subjectOf(file.Name()); err != nil {
		return err
	} else if w.isOther(uid) {
		return fmt.Errorf("the archive %s is of another pod %s, with the UID %s in place of %s", filepath.Base(file.Name()), w.pod.Name, uid, w.pod.UID)
	}
	return nil
}

// path of a container's archive.
func (w *work) path(container string) string {
	return filepath.Join(w.agent.Directory, w.files[container].name)
}

// removeFiles removes the archives: they hold whatever the processes had in memory.
func (w *work) removeFiles(ctx context.Context) {
	for container := range w.files {
		err := os.Remove(w.path(container))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			log.FromContext(ctx).Error(err, "cannot remove the archive", "container", container)
		}
	}
	w.files = nil
}

// unreadableFor is how long an archive may be unreadable: one that is being written is, and of others nothing can be restored.
const unreadableFor = time.Hour

// removeStrays removes older archives of a container.
func removeStrays(directory string, pod *corev1.Pod, container string, now time.Time) error {
	// As the kubelet calls them, with the time behind the last dash of these.
	strays, err := filepath.Glob(filepath.Join(directory, fmt.Sprintf("checkpoint-%s_%s-%s-*.tar", pod.Name, pod.Namespace, container)))
	if err != nil {
		return fmt.Errorf("look for older archives: %w", err)
	}
	for _, stray := range strays {
		if of, _, err := subjectOf(stray); err != nil {
			if known, err := os.Stat(stray); err != nil || now.Sub(known.ModTime()) < unreadableFor {
				continue
			}
		} else if of != (subject{pod.Namespace, pod.Name, container}) {
			continue
		}
		if err := os.Remove(stray); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove an older archive: %w", err)
		}
	}
	return nil
}

// needSpace returns an error when the disk is too full for a checkpoint.
func needSpace(directory string, bytes uint64) error {
	var disk unix.Statfs_t
	if err := unix.Statfs(directory, &disk); err != nil {
		return fmt.Errorf("look how full the disk of %s is: %w", directory, err)
	}
	if free := disk.Bavail * uint64(disk.Bsize); free < bytes { //nolint:gosec // the size of a block
		return fmt.Errorf("the node's disk has only %d MiB free, less than the %d MiB of --min-free-space: a checkpoint would fill it. "+
			"Make room on the node, or give nodes larger disks", free>>20, bytes>>20)
	}
	return nil
}
