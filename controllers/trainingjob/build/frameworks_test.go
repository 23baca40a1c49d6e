package build

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
)

func framed(name mlv1.Framework) *builders.TrainingJobBuilder {
	return builders.TrainingJob("bert").Workers(2).Spec(func(s *mlv1.TrainingJobSpec) {
		s.Framework, s.Image, s.Command, s.Args = name, "own:1", []string{"python", "train.py"}, []string{"--fast"}
	})
}

func portNames[P corev1.ServicePort | corev1.ContainerPort](ports []P) []string {
	var names []string
	for _, port := range ports {
		switch p := any(port).(type) {
		case corev1.ServicePort:
			names = append(names, p.Name)
		case corev1.ContainerPort:
			names = append(names, p.Name)
		}
	}
	return names
}

func TestWhatAFrameworkAddsToTheChildren(t *testing.T) {
	plain := []string{"python", "train.py"}
	launched := []string{"python3", "/etc/training/launcher.py"}
	for name, test := range map[mlv1.Framework]struct {
		command, args []string
		ports         []string
		files         []string
		backend       string
	}{
		mlv1.FrameworkPyTorch:    {command: plain, args: []string{"--fast"}, backend: "gloo"},
		mlv1.FrameworkTensorFlow: {command: plain, args: []string{"--fast"}, backend: "gloo"},
		mlv1.FrameworkJAX:        {command: plain, args: []string{"--fast"}, backend: "gloo"},
		mlv1.FrameworkXGBoost:    {command: plain, args: []string{"--fast"}, backend: "gloo"},
		mlv1.FrameworkMPI: {
			command: launched, args: []string{"mpi", "--", "python", "train.py", "--fast"}, ports: []string{"launch"},
			files: []string{"launcher.py"}, backend: "mpi",
		},
		mlv1.FrameworkRay: {
			command: launched, args: []string{"ray", "--", "python", "train.py", "--fast"},
			ports: []string{"launch", "gcs", "dashboard", "client"}, files: []string{"launcher.py"}, backend: "gloo",
		},
	} {
		t.Run(string(name), func(t *testing.T) {
			job := framed(name).Obj()

			container := Trainer(job, Settings{})
			assert.Equal(t, test.command, container.Command)
			assert.Equal(t, test.args, container.Args)
			assert.Equal(t, append([]string{"metrics", "master"}, test.ports...), portNames(container.Ports))
			assert.Equal(t, append([]string{"master"}, test.ports...), portNames(HeadlessService(job).Spec.Ports))
			assert.Equal(t, append([]string{"metrics", "master"}, test.ports...), portNames(MasterService(job).Spec.Ports))
			files := ConfigMap(job).Data
			for _, file := range test.files {
				assert.NotEmpty(t, files[file], file)
			}
			assert.Len(t, files, 5+len(test.files))
			env := map[string]string{}
			for _, variable := range container.Env {
				assert.NotContains(t, env, variable.Name, "twice")
				env[variable.Name] = variable.Value
			}
			assert.Equal(t, string(name), env["FRAMEWORK"])
			assert.Equal(t, test.backend, env["DIST_BACKEND"])
		})
	}
}

func TestReplicasAreReachedByTheirHostNames(t *testing.T) {
	got := Topology(framed(mlv1.FrameworkMPI).GPUs(2).Obj())
	assert.Equal(t, []string{"bert-training-0.bert-headless", "bert-training-1.bert-headless"}, got.Hosts)
	assert.Equal(t, got.Hosts[0], got.MasterAddress)
	assert.Equal(t, "uid-of-bert", got.ID)
	assert.Equal(t, int32(2), got.GPUsPerWorker)
}

func TestConflictss(t *testing.T) {
	for name, test := range map[string]struct {
		job   *builders.TrainingJobBuilder
		field string
	}{
		"none":                {job: framed(mlv1.FrameworkRay)},
		"none of the default": {job: builders.TrainingJob("bert")},
		"an image that is needed": {
			job: framed(mlv1.FrameworkTensorFlow).Spec(func(s *mlv1.TrainingJobSpec) { s.Image = "" }), field: "spec.image",
		},
		"a command that is needed": {
			job: framed(mlv1.FrameworkRay).Spec(func(s *mlv1.TrainingJobSpec) { s.Command = nil }), field: "spec.command",
		},
		"a port that the framework has": {
			job:   framed(mlv1.FrameworkRay).Spec(func(s *mlv1.TrainingJobSpec) { s.Monitoring.MetricsPort = 10001 }),
			field: "spec.monitoring.metricsPort",
		},
		"an unknown framework": {job: framed("caffe"), field: "spec.framework"},
	} {
		t.Run(name, func(t *testing.T) {
			field, message := Check(test.job.Obj())
			assert.Equal(t, test.field, field)
			assert.Equal(t, field == "", message == "")
		})
	}
}
