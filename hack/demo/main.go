// Command demo applies a TrainingJob to the cluster of the current kubeconfig, shows its progress as the operator
// reports it, and sums up what happened: who took part, how the loss fell, where the checkpoint lies.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

func main() {
	file := flag.String("job", "config/samples/ml_v1_trainingjob.yaml", "the TrainingJob to apply")
	pace := flag.String("step-delay", "0.1", "seconds that the worker waits after each step, so that there is something to watch")
	timeout := flag.Duration("timeout", 10*time.Minute, "give up after this time")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	if err := run(ctx, *file, *pace); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

type demo struct {
	client.Client

	pods kubernetes.Interface
	view view
}

func run(ctx context.Context, file, pace string) error {
	d, err := connect()
	if err != nil {
		return err
	}
	job, err := readJob(file)
	if err != nil {
		return err
	}
	if pace != "" {
		job.Spec.Env = append(job.Spec.Env, corev1.EnvVar{Name: "STEP_DELAY_SECONDS", Value: pace})
	}
	if err := d.replace(ctx, job); err != nil {
		return err
	}
	d.view.start(job)
	last, err := d.follow(ctx, job)
	if err != nil {
		return err
	}
	if last.Status.State == mlv1.StateFailed {
		return fmt.Errorf("the job failed: %s: %s", last.Status.Reason, last.Status.FailureReason)
	}
	return d.summarize(ctx, last)
}

func connect() (*demo, error) {
	config, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w: set KUBECONFIG", err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), mlv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	objects, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	pods, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return &demo{Client: objects, pods: pods}, nil
}

func readJob(file string) (*mlv1.TrainingJob, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the job: %w", err)
	}
	job := &mlv1.TrainingJob{}
	if err := yaml.UnmarshalStrict(text, job); err != nil {
		return nil, fmt.Errorf("read %s as a TrainingJob: %w", file, err)
	}
	if job.Namespace == "" {
		job.Namespace = corev1.NamespaceDefault
	}
	return job, nil
}

// replace creates the job, in place of one of the same name from an earlier demo.
func (d *demo) replace(ctx context.Context, job *mlv1.TrainingJob) error {
	if err := client.IgnoreNotFound(d.Delete(ctx, job.DeepCopy())); err != nil {
		return fmt.Errorf("delete the job of an earlier demo: %w", err)
	}
	if err := d.Create(ctx, job); err != nil {
		return fmt.Errorf("create the TrainingJob: %w", err)
	}
	return nil
}

// follow shows the job until it has finished.
func (d *demo) follow(ctx context.Context, job *mlv1.TrainingJob) (*mlv1.TrainingJob, error) {
	var last *mlv1.TrainingJob
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		last = &mlv1.TrainingJob{}
		if err := d.Get(ctx, client.ObjectKeyFromObject(job), last); err != nil {
			return false, err
		}
		if d.view.update(last) {
			kubectl(ctx, "get", "trainingjob", job.Name, "-n", job.Namespace)
		}
		return last.Status.State == mlv1.StateCompleted || last.Status.State == mlv1.StateFailed, nil
	})
	if ctx.Err() != nil {
		return nil, fmt.Errorf("the job did not finish in time: see kubectl describe trainingjob: %w", ctx.Err())
	}
	if err != nil {
		return nil, fmt.Errorf("watch the job: %w", err)
	}
	return last, nil
}

// kubectl shows what a user would see; without kubectl it shows nothing.
func kubectl(ctx context.Context, args ...string) {
	path, err := exec.LookPath("kubectl")
	if err != nil {
		return
	}
	fmt.Printf("\n  $ kubectl %s\n", strings.Join(args, " "))
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	indent(string(out))
	if err != nil {
		fmt.Println("  kubectl:", err)
	}
	fmt.Println()
}
