package chaos

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
)

// keepState writes what there is when something did not come, to be kept with the logs: a seed seldom has the same happen twice.
func (l *workload) keepState() {
	ctx, cancel := context.WithTimeout(context.Background(), report/2)
	defer cancel()
	var text strings.Builder
	for _, list := range []client.ObjectList{
		&corev1.NamespaceList{}, &corev1.NodeList{}, &corev1.PodList{}, &batchv1.JobList{}, &mlv1.TrainingJobList{}, &aiplatformv1alpha1.AIJobList{},
		&aiplatformv1alpha1.AIJobQueueList{}, &spotv1alpha1.SpotInstanceJobList{}, &spotv1alpha1.SpotInstanceVMList{},
	} {
		err := l.List(ctx, list)
		if err == nil {
			err = meta.EachListItem(list, func(item runtime.Object) error {
				object := item.(client.Object)
				if object.GetNamespace() != "" && object.GetNamespace() != l.namespace {
					return nil
				}
				object.SetManagedFields(nil)
				written, err := yaml.Marshal(object)
				fmt.Fprintf(&text, "--- %T\n%s", object, written)
				return err
			})
		}
		if err != nil {
			fmt.Fprintf(&text, "--- %T: %v\n", list, err)
		}
	}
	for _, i := range l.compute.Instances() {
		fmt.Fprintf(&text, "--- instance\n%+v\n", i)
	}
	text.WriteString(l.nodes.state())
	name := filepath.Join(l.folder, fmt.Sprintf("state-%s-%d.log", l.namespace, time.Now().Unix()))
	if err := os.WriteFile(name, []byte(text.String()), 0o600); err != nil {
		l.note("%v", err)
	}
}

// state is what the kubelets know.
func (k *kubelets) state() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(k.nodes)) {
		n := k.nodes[name]
		fmt.Fprintf(&text, "--- kubelet %s: dead %t, silent %t, stays %t, back %s, skew %s, boots %d\n", name, n.dead, n.silent, n.stays, n.back, n.skew, n.boots)
	}
	for uid, p := range k.programs {
		fmt.Fprintf(&text, "--- program %s of pod %s on %s: state %d, due %s\n", uid, p.pod, p.node, p.state, p.due)
	}
	return text.String()
}
