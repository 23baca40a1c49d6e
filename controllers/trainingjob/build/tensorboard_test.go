package build

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

// withTensorBoard asks for TensorBoard.
func withTensorBoard(s *mlv1.TrainingJobSpec) { s.Monitoring.TensorboardEnabled = ptr.To(true) }

func TestTensorBoardRunsBesideTheTrainerAndReadsWhatItWrites(t *testing.T) {
	settings := Settings{TensorBoardImage: "tensorboard:1"}
	for name, test := range map[string]struct {
		job   *builders.TrainingJobBuilder
		dir   string
		image string
		mount corev1.VolumeMount
	}{
		"on the claim of the checkpoints": {
			builders.TrainingJob("bert").Checkpoints().Spec(withTensorBoard), "/checkpoints/.tensorboard/bert/" + string(builders.TrainingJob("bert").Obj().UID),
			"tensorboard:1", corev1.VolumeMount{Name: "checkpoints", MountPath: "/checkpoints", ReadOnly: true},
		},
		"without checkpoints": {
			builders.TrainingJob("bert").Spec(withTensorBoard), "/tensorboard",
			"tensorboard:1", corev1.VolumeMount{Name: "tensorboard", MountPath: "/tensorboard", ReadOnly: true},
		},
		"with an image of the user's": {
			builders.TrainingJob("bert").Spec(withTensorBoard).Spec(func(s *mlv1.TrainingJobSpec) { s.Monitoring.TensorboardImage = "own:2" }), "/tensorboard",
			"own:2", corev1.VolumeMount{Name: "tensorboard", MountPath: "/tensorboard", ReadOnly: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := test.job.Obj()
			pod := PodSpec(job, settings)

			require.Len(t, pod.InitContainers, 1)
			sidecar, trainer := pod.InitContainers[0], pod.Containers[0]
			assert.Equal(t, corev1.ContainerRestartPolicyAlways, *sidecar.RestartPolicy, "it starts before the trainer, and ends after it")
			assert.Equal(t, test.image, sidecar.Image)
			assert.Equal(t, []corev1.VolumeMount{test.mount}, sidecar.VolumeMounts)
			for _, container := range []corev1.Container{sidecar, trainer} {
				assert.Contains(t, container.Env, corev1.EnvVar{Name: "TENSORBOARD_LOGDIR", Value: test.dir}, container.Name)
			}
			written := test.mount
			written.ReadOnly = false
			assert.Contains(t, trainer.VolumeMounts, written)
			assert.Nil(t, sidecar.ReadinessProbe, "a TensorBoard that is slow to start must not make its worker unready")
			assert.False(t, *sidecar.SecurityContext.AllowPrivilegeEscalation)
			assert.Equal(t, []corev1.Capability{"ALL"}, sidecar.SecurityContext.Capabilities.Drop)

			service := TensorBoardService(job)
			assert.Equal(t, "bert-tensorboard", service.Name)
			assert.Equal(t, map[string]string{"training-job": "bert", "batch.kubernetes.io/job-completion-index": "0"}, service.Spec.Selector)
			assert.Equal(t, int32(6006), service.Spec.Ports[0].Port)
			assert.Equal(t, int32(6006), sidecar.Ports[0].ContainerPort)
		})
	}
}

func TestNobodyPaysForATensorBoardThatWasNotAskedFor(t *testing.T) {
	for name, job := range map[string]*mlv1.TrainingJob{
		"by default": builders.TrainingJob("bert").Obj(),
		"false":      builders.TrainingJob("bert").Spec(func(s *mlv1.TrainingJobSpec) { s.Monitoring.TensorboardEnabled = ptr.To(false) }).Obj(),
	} {
		t.Run(name, func(t *testing.T) {
			pod := PodSpec(job, Settings{TensorBoardImage: "tensorboard:1"})
			assert.Empty(t, pod.InitContainers)
			for _, variable := range pod.Containers[0].Env {
				assert.NotContains(t, variable.Name, "TENSORBOARD")
			}
		})
	}
}

// The script is run by a real shell, with a command of the name that leaves its arguments behind.
func TestTheScriptOfTheSidecar(t *testing.T) {
	for replica, want := range map[string]string{"0": "--logdir=/logs --port=6006 --bind_all --reload_interval=15\n", "1": ""} {
		t.Run("replica "+replica, func(t *testing.T) {
			folder := t.TempDir()
			called := filepath.Join(folder, "called")
			stand := "#!/bin/sh\necho \"$@\" > " + called + ".part\nmv " + called + ".part " + called + "\nexec sleep 60\n"
			require.NoError(t, os.WriteFile(filepath.Join(folder, "tensorboard"), []byte(stand), 0o700))
			command := exec.Command("/bin/sh", "-c", TensorBoardScript)
			command.Env = []string{"PATH=" + folder + ":" + os.Getenv("PATH"), "REPLICA_ID=" + replica, "TENSORBOARD_LOGDIR=/logs", "TENSORBOARD_PORT=6006"}
			output, err := os.Create(filepath.Join(folder, "output"))
			require.NoError(t, err)
			defer output.Close()
			command.Stdout, command.Stderr = output, output
			command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // in a container its children end with it
			require.NoError(t, command.Start())
			defer func() { _ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }()
			if want != "" {
				require.Eventually(t, func() bool { _, err := os.Stat(called); return err == nil }, time.Minute, 10*time.Millisecond)
			} else {
				// It has set its trap once it has a child.
				require.Eventually(t, func() bool { return hasChild(command.Process.Pid) }, time.Minute, 10*time.Millisecond)
			}
			require.NoError(t, command.Process.Signal(os.Interrupt))
			ended := make(chan error, 1)
			go func() { ended <- command.Wait() }()
			select {
			case err := <-ended:
				assert.NoError(t, err, "told to end, it ends at once")
			case <-time.After(10 * time.Second):
				_ = command.Process.Kill()
				assert.Fail(t, "it does not end when it is told to")
			}
			text, _ := os.ReadFile(called)
			assert.Equal(t, want, string(text))
			said, err := os.ReadFile(output.Name())
			require.NoError(t, err)
			assert.Empty(t, string(said))
		})
	}
}

func hasChild(pid int) bool {
	thread := strconv.Itoa(pid)
	children, err := os.ReadFile("/proc/" + thread + "/task/" + thread + "/children")
	return err == nil && len(children) > 0
}
