package checkpointbackup

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Fields that have two names: the first is the one of external agents in use, the second that of older ones. Both are
// written, because a server drops what the schema of its version does not know, and either is read.
const (
	statusContainers  = "containers"
	statusBuiltImages = "builtImages"
	statusCompletion  = "completionTime"
	statusLast        = "lastCheckpointTime"
)

// Object is an empty CheckpointBackup of a version.
func Object(version string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: GroupKind.Group, Version: version, Kind: GroupKind.Kind})
	return object
}

// Decode reads a CheckpointBackup of any version. What is missing or of another type than it should be counts as not set:
// the object is another project's, and its agent is the one to complain.
func Decode(object *unstructured.Unstructured) Backup {
	spec, status := fields(object.Object).within("spec"), fields(object.Object).within("status")
	b := Backup{
		Key:     types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()},
		Created: object.GetCreationTimestamp().Time,
		Deleted: object.GetDeletionTimestamp() != nil,
		Labels:  object.GetLabels(),
		Spec:    decodeSpec(spec),
		Status: Status{
			Phase:     Phase(status.text("phase")),
			Message:   status.text("message"),
			Completed: status.time(statusCompletion),
			Images:    status.containers(statusContainers, "name", "image"),
		},
	}
	if len(b.Status.Images) == 0 {
		b.Status.Images = status.containers(statusBuiltImages, "containerName", "imageName")
	}
	if b.Status.Completed.IsZero() && b.Status.Phase.Ended() {
		b.Status.Completed = status.time(statusLast)
	}
	if b.Spec.Pod.Namespace == "" {
		b.Spec.Pod.Namespace = b.Key.Namespace
	}
	if b.Spec.Resource.Namespace == "" && b.Spec.Resource.Name != "" {
		b.Spec.Resource.Namespace = b.Key.Namespace
	}
	if b.Spec.Registry.Secret.Namespace == "" && b.Spec.Registry.Secret.Name != "" {
		b.Spec.Registry.Secret.Namespace = b.Key.Namespace
	}
	return b
}

func decodeSpec(spec fields) Spec {
	pod, resource, registry := spec.within("podRef"), spec.within("resourceRef"), spec.within("registry")
	secret := registry.within("secretRef")
	stop, _ := spec["stopPod"].(bool)
	return Spec{
		Schedule: spec.text("schedule"),
		StopPod:  stop,
		Pod:      types.NamespacedName{Namespace: pod.text("namespace"), Name: pod.text("name")},
		Resource: Resource{
			APIVersion: resource.text("apiVersion"), Kind: resource.text("kind"),
			Namespace: resource.text("namespace"), Name: resource.text("name"),
		},
		Registry: Registry{
			URL: registry.text("url"), Repository: registry.text("repository"),
			Secret: types.NamespacedName{Namespace: secret.text("namespace"), Name: secret.text("name")},
		},
		Containers: spec.containers("containers", "name", "image"),
	}
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

// EncodeStatus writes a status as both versions know it.
func EncodeStatus(s Status) map[string]any {
	status := set("phase", string(s.Phase), "message", s.Message)
	if !s.Completed.IsZero() {
		at := s.Completed.UTC().Format(time.RFC3339)
		status[statusCompletion], status[statusLast] = at, at
	}
	if len(s.Images) > 0 {
		status[statusContainers] = list(s.Images, "name", "image")
		status[statusBuiltImages] = list(s.Images, "containerName", "imageName")
	}
	return status
}

// Owned adds an owner, with which the CheckpointBackup is deleted.
func Owned(object *unstructured.Unstructured, owner metav1.OwnerReference) {
	object.SetOwnerReferences(append(object.GetOwnerReferences(), owner))
}

// fields of an object, read without complaints.
type fields map[string]any

func (f fields) within(name string) fields {
	inner, _ := f[name].(map[string]any)
	return inner
}

func (f fields) text(name string) string {
	text, _ := f[name].(string)
	return text
}

func (f fields) time(name string) time.Time {
	at, err := time.Parse(time.RFC3339Nano, f.text(name))
	if err != nil {
		return time.Time{}
	}
	return at
}

// containers reads a list of pairs; one without a name is left out.
func (f fields) containers(name, key, image string) []Container {
	items, _ := f[name].([]any)
	var all []Container
	for _, item := range items {
		entry, _ := item.(map[string]any)
		one := Container{Name: fields(entry).text(key), Image: fields(entry).text(image)}
		if one.Name != "" {
			all = append(all, one)
		}
	}
	return all
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
