package containercheckpoint

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/robfig/cron/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/dcnlab/spot-training-operator/internal/checkpointbackup"
	"github.com/dcnlab/spot-training-operator/internal/podend"
)

// check says what of a CheckpointBackup cannot be done, in words for its author; nil when all is well.
func check(b checkpointbackup.Backup, pod *corev1.Pod, insecure Insecure, now time.Time) error {
	spec := b.Spec
	switch {
	case spec.Pod.Namespace != b.Key.Namespace:
		return fmt.Errorf("spec.podRef.namespace: is %s, but who may create a CheckpointBackup here need not be allowed to read the memory "+
			"of pods there: create it in %s", spec.Pod.Namespace, spec.Pod.Namespace)
	case spec.Registry.Secret.Name != "" && spec.Registry.Secret.Namespace != b.Key.Namespace:
		return fmt.Errorf("spec.registry.secretRef.namespace: is %s, but only Secrets of the CheckpointBackup's own namespace are read: "+
			"copy the Secret into %s", spec.Registry.Secret.Namespace, b.Key.Namespace)
	case spec.Registry.URL == "":
		return errors.New("spec.registry.url: is not set, and this agent keeps no images on the node: name the registry to push to")
	}
	if _, err := parseSchedule(spec.Schedule); err != nil {
		return err
	}
	if podend.IsEnded(pod) {
		return fmt.Errorf("spec.podRef.name: pod %s has ended, and there is nothing left to checkpoint", pod.Name)
	}
	_, err := targets(b, pod, insecure, now)
	return err
}

// parseSchedule reads a cron expression; of Immediately it returns nil.
func parseSchedule(schedule string) (cron.Schedule, error) {
	if schedule == checkpointbackup.Immediately {
		return nil, nil
	}
	parsed, err := cron.ParseStandard(schedule)
	if err != nil {
		return nil, fmt.Errorf("spec.schedule: %q is neither %s nor a cron expression of five fields such as \"0 2 * * *\": %w",
			schedule, checkpointbackup.Immediately, err)
	}
	return parsed, nil
}

// due is when a CheckpointBackup is to be served next; zero for never again. The first time is at once.
func due(b checkpointbackup.Backup) time.Time {
	if b.Status.Phase == "" {
		return b.Created
	}
	schedule, err := parseSchedule(b.Spec.Schedule)
	if err != nil || schedule == nil || b.Status.Phase == checkpointbackup.CompletedPodDeleted || b.Status.Completed.IsZero() {
		return time.Time{}
	}
	return schedule.Next(b.Status.Completed.UTC())
}

// target is a container and the name of the image that its checkpoint becomes.
type target struct {
	container string
	image     name.Tag
}

// targets are what is to be checkpointed, with the names that the images get at that time.
func targets(b checkpointbackup.Backup, pod *corev1.Pod, insecure Insecure, now time.Time) ([]target, error) {
	asked := b.Spec.Containers
	if len(asked) == 0 {
		for _, container := range pod.Spec.Containers {
			asked = append(asked, checkpointbackup.Container{Name: container.Name})
		}
	}
	var all []target
	seen := map[string]string{}
	for i, one := range asked {
		field := fmt.Sprintf("spec.containers[%d]", i)
		if !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == one.Name }) {
			return nil, fmt.Errorf("%s.name: pod %s has no container %s: name one of %s", field, pod.Name, one.Name, containerNames(pod))
		}
		if slices.ContainsFunc(all, func(t target) bool { return t.container == one.Name }) {
			return nil, fmt.Errorf("%s.name: container %s is named twice: remove one", field, one.Name)
		}
		image, err := imageName(b.Spec.Registry, one, pod.Name, now)
		if err != nil {
			return nil, fmt.Errorf("%s.image: %w", field, err)
		}
		tag, err := name.NewTag(image, insecure.options(image)...)
		if err != nil {
			return nil, fmt.Errorf("%s.image: %q is not a valid image reference: write for example %s/team/checkpoints:first: %w",
				field, image, b.Spec.Registry.URL, err)
		}
		if other, twice := seen[tag.Name()]; twice {
			return nil, fmt.Errorf("%s.image: is that of container %s as well, which it would overwrite: give each a tag of its own", field, other)
		}
		seen[tag.Name()] = one.Name
		all = append(all, target{container: one.Name, image: tag})
	}
	return all, nil
}

func containerNames(pod *corev1.Pod) string {
	var names []string
	for _, container := range pod.Spec.Containers {
		names = append(names, container.Name)
	}
	return strings.Join(names, ", ")
}

// imageName completes what is asked for to a full reference with a tag.
func imageName(registry checkpointbackup.Registry, asked checkpointbackup.Container, pod string, now time.Time) (string, error) {
	host := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(registry.URL, "https://"), "http://"), "/")
	repository := strings.Trim(registry.Repository, "/")
	stamp := now.UTC().Format("20060102-150405")
	image := strings.TrimPrefix(asked.Image, "/")
	first, _, hasPath := strings.Cut(image, "/")
	// As container engines tell a host from a path.
	named := hasPath && (strings.ContainsAny(first, ".:") || first == "localhost")
	switch {
	case strings.Contains(image, "@"):
		return "", fmt.Errorf("%q has a digest, which only the finished image will have: give it a tag, or none", asked.Image)
	case image == "" && repository == "":
		return "", errors.New("is empty, and so is spec.registry.repository: set one of them")
	case image == "":
		// A repository for all containers of all pods: the tag tells them apart.
		tag := pod + "-" + asked.Name + "-" + stamp
		return host + "/" + repository + ":" + tag[max(0, len(tag)-127):], nil
	case strings.HasPrefix(image, host+"/"):
	case named:
		return "", fmt.Errorf("%q is in another registry than %s of spec.registry.url, for which the Secret is: name one registry", asked.Image, host)
	case repository == "" || image == repository || strings.HasPrefix(image, repository+"/") || strings.HasPrefix(image, repository+":"):
		image = host + "/" + image
	default:
		image = host + "/" + repository + "/" + image
	}
	if last := image[strings.LastIndex(image, "/")+1:]; !strings.Contains(last, ":") {
		image += ":" + stamp
	}
	return image, nil
}
