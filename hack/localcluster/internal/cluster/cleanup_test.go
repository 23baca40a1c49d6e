package cluster

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestWithoutClusterRules(t *testing.T) {
	const others = `*filter
:INPUT DROP [0:0]
:DOCKER-USER - [0:0]
-A INPUT -p tcp --dport 22 -j ACCEPT
-A DOCKER-USER -m comment --comment "not localcluster" -j RETURN
COMMIT
`
	const ours = `*filter
:INPUT DROP [0:0]
:DOCKER-USER - [0:0]
:KUBE-FORWARD - [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
-A INPUT -p tcp --dport 22 -j ACCEPT
-A INPUT -m comment --comment "kubernetes health check" -j KUBE-FORWARD
-A DOCKER-USER -m comment --comment "not localcluster" -j RETURN
-A FORWARD -s 10.78.0.0/16 -m comment --comment localcluster -j ACCEPT
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
COMMIT
`
	got, changed := withoutClusterRules(ours)
	if got != others || !changed {
		t.Errorf("got (changed %t)\n%s\nwant\n%s", changed, got, others)
	}
	if got, changed := withoutClusterRules(others); got != others || changed {
		t.Errorf("rules of others were changed (%t) to\n%s", changed, got)
	}
}

func TestContainerCgroups(t *testing.T) {
	tasks := t.TempDir()
	for id, config := range map[string]string{
		"a": `{"linux": {"cgroupsPath": "/kubepods/besteffort/pod1/a"}}`,
		"b": `{"linux": {"cgroupsPath": "/"}}`,
		"c": `{"linux": {}}`,
		"d": `not json`,
	} {
		bundle := filepath.Join(tasks, "k8s.io", id)
		if err := os.MkdirAll(bundle, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(bundle, "config.json"), []byte(config), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := containerCgroups(tasks), []string{"/kubepods/besteffort/pod1/a"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q; the root group holds every process of the machine", got, want)
	}
}

func TestOnlyDeadSocketsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	alive, dead := filepath.Join(dir, "alive"), filepath.Join(dir, "dead")
	listener, err := net.Listen("unix", alive)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ended, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead})
	if err != nil {
		t.Fatal(err)
	}
	ended.SetUnlinkOnClose(false)
	if err := ended.Close(); err != nil {
		t.Fatal(err)
	}
	removeDeadSocket(alive)
	removeDeadSocket(dead)
	removeDeadSocket(filepath.Join(dir, "none"))
	if _, err := os.Stat(alive); err != nil {
		t.Errorf("a socket with a listener was removed: %v", err)
	}
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		t.Errorf("a socket without a listener is still there: %v", err)
	}
}

func TestSysctlsAreSavedOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run", "sysctl.json")
	if err := saveSysctls(file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(`{"from": "before"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := saveSysctls(file); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(file); string(got) != `{"from": "before"}` {
		t.Errorf("the values from before the cluster were overwritten with %s", got)
	}
}

func TestSimulatedNode(t *testing.T) {
	node, err := simulatedNode(Simulation{Pods: 128, CPU: "8", Memory: "32Gi", Resources: map[string]string{"nvidia.com/gpu": "4"}, Labels: map[string]string{"zone": "a"}}, 7)
	if err != nil {
		t.Fatal(err)
	}
	if node.Name != "sim-0007" || node.Labels["zone"] != "a" || node.Labels[corev1.LabelHostname] != "sim-0007" {
		t.Errorf("name %s, labels %v", node.Name, node.Labels)
	}
	for name, want := range map[corev1.ResourceName]string{"cpu": "8", "memory": "32Gi", "pods": "128", "nvidia.com/gpu": "4"} {
		quantity := node.Status.Allocatable[name]
		if quantity.String() != want {
			t.Errorf("%s is %s, want %s", name, quantity.String(), want)
		}
	}
	if _, err := simulatedNode(Simulation{Pods: 1, CPU: "many", Memory: "1Gi"}, 0); err == nil {
		t.Error("no error for a CPU count that is no quantity")
	}
}

func TestNodeReady(t *testing.T) {
	ready := corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}
	for name, test := range map[string]struct {
		node corev1.Node
		want bool
	}{
		"ready":         {corev1.Node{Status: ready}, true},
		"no condition":  {corev1.Node{}, false},
		"still tainted": {corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "node.kubernetes.io/not-ready"}}}, Status: ready}, false},
		"user's taint":  {corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "spot"}}}, Status: ready}, true},
	} {
		if got := nodeReady(test.node); got != test.want {
			t.Errorf("%s: ready %t, want %t", name, got, test.want)
		}
	}
}

func TestLayoutRefusesLongPaths(t *testing.T) {
	if err := (Layout{State: "/short"}).validate(); err != nil {
		t.Error(err)
	}
	long := "/" + string(make([]byte, 120))
	if err := (Layout{State: long}).validate(); err == nil {
		t.Error("no error for a path too long for sockets")
	}
}
