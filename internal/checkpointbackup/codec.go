package checkpointbackup

import (
	"cmp"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Object is an empty CheckpointBackup of a version.
func Object(version string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: GroupKind.Group, Version: version, Kind: GroupKind.Kind})
	return object
}

// wireStatus is the status in JSON, under the names of both kinds of agents.
type wireStatus struct {
	Phase              Phase
	Message            string
	CompletionTime     string
	LastCheckpointTime string
	Containers         []Container
	BuiltImages        []struct{ ContainerName, ImageName string }
}

// Decode reads a CheckpointBackup of any version. What is missing or of another type than it should be counts as not set:
// the object is another project's, and its agent is the one to complain.
func Decode(object *unstructured.Unstructured) Backup {
	b := Backup{
		Key:     types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()},
		Created: object.GetCreationTimestamp().Time,
		Deleted: object.GetDeletionTimestamp() != nil,
		Labels:  object.GetLabels(),
	}
	var status wireStatus
	ReadField(object, &b.Spec, "spec")
	ReadField(object, &status, "status")
	b.Spec.Containers = named(b.Spec.Containers)
	b.Status = Status{Phase: status.Phase, Message: status.Message, Images: named(status.Containers), Completed: timeOf(status.CompletionTime)}
	if len(b.Status.Images) == 0 {
		for _, built := range status.BuiltImages {
			b.Status.Images = append(b.Status.Images, Container{Name: built.ContainerName, Image: built.ImageName})
		}
		b.Status.Images = named(b.Status.Images)
	}
	if b.Status.Completed.IsZero() && b.Status.Phase.Ended() {
		b.Status.Completed = timeOf(status.LastCheckpointTime)
	}
	spec := &b.Spec
	spec.Pod.Namespace = cmp.Or(spec.Pod.Namespace, b.Key.Namespace)
	if spec.Resource.Name != "" {
		spec.Resource.Namespace = cmp.Or(spec.Resource.Namespace, b.Key.Namespace)
	}
	if secret := &spec.Registry.Secret; secret.Name != "" {
		secret.Namespace = cmp.Or(secret.Namespace, b.Key.Namespace)
	}
	return b
}

// ReadField reads what it can of a field of an object: the JSON decoder passes over values of another type.
func ReadField(object *unstructured.Unstructured, into any, path ...string) {
	value, _, _ := unstructured.NestedFieldNoCopy(object.Object, path...)
	if text, err := json.Marshal(value); err == nil {
		_ = json.Unmarshal(text, into)
	}
}

// named leaves those out that have no name.
func named(all []Container) (named []Container) {
	for _, one := range all {
		if one.Name != "" {
			named = append(named, one)
		}
	}
	return named
}

func timeOf(text string) time.Time {
	at, _ := time.Parse(time.RFC3339Nano, text) // the zero time with an error
	return at
}

// Encode writes what a user says of a CheckpointBackup, its name, labels and spec, in a version. The spec is the same in
// both.
func Encode(b Backup, version string) *unstructured.Unstructured {
	object := Object(version)
	object.SetNamespace(b.Key.Namespace)
	object.SetName(b.Key.Name)
	if len(b.Labels) > 0 {
		object.SetLabels(b.Labels)
	}
	spec := map[string]any{
		"schedule": b.Spec.Schedule,
		"podRef":   set("name", b.Spec.Pod.Name, "namespace", b.Spec.Pod.Namespace),
		"resourceRef": set("apiVersion", b.Spec.Resource.APIVersion, "kind", b.Spec.Resource.Kind,
			"name", b.Spec.Resource.Name, "namespace", b.Spec.Resource.Namespace),
	}
	if b.Spec.StopPod {
		spec["stopPod"] = true
	}
	if b.Spec.Registry != (Registry{}) {
		registry := set("url", b.Spec.Registry.URL, "repository", b.Spec.Registry.Repository)
		if b.Spec.Registry.Secret.Name != "" {
			registry["secretRef"] = set("name", b.Spec.Registry.Secret.Name, "namespace", b.Spec.Registry.Secret.Namespace)
		}
		spec["registry"] = registry
	}
	if len(b.Spec.Containers) > 0 {
		spec["containers"] = list(b.Spec.Containers, "name", "image")
	}
	object.Object["spec"] = spec
	return object
}

// EncodeStatus writes a status as both versions know it. Two fields have two names: the first is the one of external agents in use,
// the second that of older ones. Both are written, because a server drops what the schema of its version does not know.
func EncodeStatus(s Status) map[string]any {
	status := set("phase", string(s.Phase), "message", s.Message)
	if !s.Completed.IsZero() {
		at := s.Completed.UTC().Format(time.RFC3339)
		status["completionTime"], status["lastCheckpointTime"] = at, at
	}
	if len(s.Images) > 0 {
		status["containers"] = list(s.Images, "name", "image")
		status["builtImages"] = list(s.Images, "containerName", "imageName")
	}
	return status
}

// set is an object of the names and values that are not empty.
func set(pairs ...string) map[string]any {
	object := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			object[pairs[i]] = pairs[i+1]
		}
	}
	return object
}

func list(containers []Container, name, image string) []any {
	items := make([]any, 0, len(containers))
	for _, container := range containers {
		// An image may be left out by who asks; the schema still wants the field.
		items = append(items, map[string]any{name: container.Name, image: container.Image})
	}
	return items
}
