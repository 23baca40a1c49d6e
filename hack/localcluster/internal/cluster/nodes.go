package cluster

import (
	"context"
	"fmt"
	"maps"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func simulatedNode(s Simulation, i int) (*corev1.Node, error) {
	name := fmt.Sprintf("sim-%04d", i)
	quantities := map[string]string{"cpu": s.CPU, "memory": s.Memory, "pods": fmt.Sprint(s.Pods), "ephemeral-storage": "1Ti"}
	maps.Copy(quantities, s.Resources)
	resources := corev1.ResourceList{}
	for resourceName, text := range quantities {
		quantity, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("resource %s=%q of simulated nodes: %w", resourceName, text, err)
		}
		resources[corev1.ResourceName(resourceName)] = quantity
	}
	labels := map[string]string{
		corev1.LabelHostname: name, corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux", "type": "kwok",
	}
	maps.Copy(labels, s.Labels)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"}},
		Status:     corev1.NodeStatus{Capacity: resources, Allocatable: resources},
	}, nil
}

// makeNodes makes those of the simulated nodes that do not exist, several at a time.
func (c Cluster) makeNodes(ctx context.Context, client kubernetes.Interface) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range c.Options.Simulation.Nodes {
		group.Go(func() error {
			node, err := simulatedNode(c.Options.Simulation, i)
			if err != nil {
				return err
			}
			_, err = client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		})
	}
	return group.Wait()
}
