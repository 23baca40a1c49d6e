package containercheckpoint

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// kubeletProblem says in an admin's words why there is no checkpoint, and what to do.
func kubeletProblem(node string, err error) error {
	var answer *kubeletError
	if !errors.As(err, &answer) {
		if errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("the checkpoint took longer than --checkpoint-timeout of the agent: raise it for processes with so much memory: %w", err)
		}
		return err
	}
	text := strings.ToLower(answer.text)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(text, word) })
	}
	advice := "see the logs of the kubelet and the container runtime on the node"
	switch {
	case answer.code == http.StatusUnauthorized:
		advice = "the kubelet must accept service account tokens: set authentication.webhook.enabled in its configuration"
	case answer.code == http.StatusForbidden:
		advice = "the agent's service account needs the verb create of nodes/checkpoint: apply config/checkpoint-agent, which has that ClusterRole"
	case answer.code == http.StatusNotFound && !has("does not exist"), answer.code == http.StatusMethodNotAllowed:
		advice = "the kubelet has no checkpoint API: it needs Kubernetes 1.30, or the feature gate ContainerCheckpoint"
	case answer.code == http.StatusNotFound, has("container is in", "not running", "is in container_exited"):
		advice = "the container has ended meanwhile, or not started yet"
	case has("criu binary not found or too old", `exec: "criu"`, "criu: no such file"):
		advice = "install CRIU 4.1 or newer on the node, where the container runtime finds it on its PATH (Debian and Ubuntu: apt-get install criu)"
	case has("unimplemented", "unknown method", "not implemented"):
		advice = "the container runtime takes no checkpoints: it needs containerd 2.0 or newer, or CRI-O with enable_criu_support"
	case has("no space left", "disk quota exceeded"):
		advice = "the node's disk is full: make room, or give nodes disks that hold the processes' memory twice"
	case has("deadlineexceeded", "deadline exceeded", "timed out"):
		advice = "the checkpoint took longer than --checkpoint-timeout of the agent: raise it for processes with so much memory"
	case has("cuda", "nvidia"):
		advice = gpuAdvice
	case has("criu failed", "criu dump", "checkpointing container", "notify"):
		advice = "CRIU could not write the processes down; criu-dump.log or dump.log in the container runtime's folder of the container says why. Often they hold " +
			"open TCP connections (allow that in /etc/criu/runc.conf on the node) or devices"
	}
	return fmt.Errorf("node %s: %w: %s", node, err, advice)
}

// pushProblem says why the registry has not got the image.
func pushProblem(image name.Tag, secret string, err error) error {
	registry := image.RegistryStr()
	var refused *transport.Error
	advice := "see whether the node reaches the registry"
	switch {
	case errors.As(err, &refused) && (refused.StatusCode == http.StatusUnauthorized || refused.StatusCode == http.StatusForbidden):
		advice = "it refuses the credentials of Secret " + secret + ": give them the right to push to " + image.Context().RepositoryStr()
		if secret == "" {
			advice = "it wants credentials: name a Secret of type kubernetes.io/dockerconfigjson in spec.registry.secretRef"
		}
	case errors.As(err, &refused) && refused.StatusCode == http.StatusNotFound:
		advice = "it has no repository " + image.Context().RepositoryStr() + ": create it, as some registries want"
	case errors.As(err, &refused) && refused.StatusCode == http.StatusRequestEntityTooLarge:
		advice = "the checkpoint is larger than the registry, or a proxy in front of it, takes: raise that limit"
	case errors.Is(err, errPlain):
		return err
	case errors.Is(err, syscall.ENOSPC):
		advice = "the disk is full"
	case errors.Is(err, context.DeadlineExceeded):
		advice = "it took longer than --push-timeout of the agent"
	case strings.Contains(err.Error(), "x509:"):
		advice = "its certificate is of an authority that the agent does not know: put that into the ConfigMap spot-checkpoint-agent-authorities"
	}
	return fmt.Errorf("push to registry %s: %s: %w", registry, advice, err)
}
