package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// waitServing waits for what the control loops and the node need.
func (c Cluster) waitServing(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	conditions := []condition{apiReady(client)}
	if !c.Options.Simulate {
		conditions = append(conditions,
			condition{what: "containerd serves", daemons: []string{"containerd"}, check: func(ctx context.Context) error {
				_, err := c.ctr(ctx, nil, "version")
				return err
			}},
			condition{what: "the image registry answers", daemons: []string{"registry"}, check: c.registryAnswers},
		)
	}
	if err := c.wait(ctx, conditions...); err != nil || c.Options.Simulate {
		return err
	}
	return c.loadPause(ctx)
}

func (c Cluster) waitReady(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	runner := "kubelet"
	if c.Options.Simulate {
		runner = "kwok"
		if err := c.makeNodes(ctx, client); err != nil {
			return err
		}
	}
	conditions := []condition{
		apiReady(client),
		{what: "all nodes are ready", daemons: []string{runner, "kube-controller-manager", "kube-scheduler"}, check: func(ctx context.Context) error {
			return c.nodesReady(ctx, client)
		}},
		// Every pod in the default namespace needs it to be admitted.
		{what: "the default service account exists", daemons: []string{"kube-controller-manager"}, check: func(ctx context.Context) error {
			_, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
			return err
		}},
	}
	if !c.Options.Simulate {
		conditions = append(conditions,
			condition{what: "names of services resolve", daemons: []string{"coredns"}, check: func(ctx context.Context) error {
				return lookup(ctx, c.Options.NodeIP, "kubernetes.default.svc.cluster.local.")
			}},
			condition{what: "cluster IPs are reachable", daemons: []string{"kube-proxy"}, check: c.serviceReachable},
		)
	}
	return c.wait(ctx, conditions...)
}

func apiReady(client kubernetes.Interface) condition {
	return condition{what: "the API server is ready", daemons: []string{"kube-apiserver", "etcd"}, check: func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}}
}

func (c Cluster) client() (*kubernetes.Clientset, error) {
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

func (c Cluster) registryAnswers(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.Options.Registry()+"/v2/", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// nodesReady checks that every node is ready and free of the taints that keep pods off a new node.
func (c Cluster) nodesReady(ctx context.Context, client kubernetes.Interface) error {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	want := 1
	if c.Options.Simulate {
		want = c.Options.Simulation.Nodes
	}
	if ready := len(slices.DeleteFunc(nodes.Items, func(node corev1.Node) bool { return !nodeReady(node) })); ready < want {
		return fmt.Errorf("%d of %d nodes are ready", ready, want)
	}
	if c.Options.Simulate {
		return nil
	}
	return c.kubeletReports(ctx, client)
}

// kubeletReports checks that the running kubelet has renewed its lease: with data of an earlier run, the node is Ready from
// the start.
func (c Cluster) kubeletReports(ctx context.Context, client kubernetes.Interface) error {
	record, ok, err := c.Layout.processes().Get("kubelet")
	if err != nil || !ok {
		return err
	}
	lease, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Time.Before(record.Started) {
		return errors.New("the kubelet has not reported yet")
	}
	return nil
}

func nodeReady(node corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if strings.HasPrefix(taint.Key, "node.kubernetes.io/") || strings.HasPrefix(taint.Key, "node.cloudprovider.kubernetes.io/") {
			return false
		}
	}
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// serviceReachable connects to the API server by its cluster IP, which only works when kube-proxy has
// written its rules.
func (c Cluster) serviceReachable(ctx context.Context) error {
	ip, err := nthAddress(c.Options.ServiceCIDR, 1)
	if err != nil {
		return err
	}
	dialer := net.Dialer{Timeout: time.Second}
	connection, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(ip, "443"))
	if err != nil {
		return err
	}
	return connection.Close()
}

func (c Cluster) applyAddons(ctx context.Context) error {
	args := []string{"apply", "--server-side", "--force-conflicts", "-f", c.Layout.run("addons.yaml")}
	if !c.Options.Simulate {
		args = append(args, "-f", c.Layout.run("joining.yaml"))
	}
	if _, err := c.Kubectl(ctx, nil, args...); err != nil {
		return fmt.Errorf("make the cluster's own objects: %w", err)
	}
	return nil
}
