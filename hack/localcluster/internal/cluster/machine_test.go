package cluster

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

func TestMachinesAndTheNodeShareTheNetworkOfPods(t *testing.T) {
	if got := nodePodCIDR("10.78.0.0/16"); got != "10.78.0.0/17" {
		t.Errorf("the node's pods are in %s, want the first half", got)
	}
	options := Options{NodeIP: "10.77.0.1", PodCIDR: "10.78.0.0/16"}
	for number, want := range map[int][2]string{
		firstMachine: {"10.77.0.2", "10.78.130.0/24"}, lastMachine: {"10.77.0.127", "10.78.255.0/24"},
	} {
		address, pods, err := addressesOf(options, number)
		if err != nil || address != want[0] || pods != want[1] {
			t.Errorf("machine %d has %s and %s, error %v; want %v", number, address, pods, err, want)
		}
	}
	options.PodCIDR = "10.78.0.0/20"
	if _, _, err := addressesOf(options, firstMachine); err == nil {
		t.Error("a network of pods that is too small is taken")
	}
}

func TestNewMachineTakesAFreeAddress(t *testing.T) {
	layout := Layout{State: t.TempDir()}
	c := Cluster{Layout: layout, Options: Options{NodeIP: "10.77.0.1", PodCIDR: "10.78.0.0/16"}, Out: io.Discard}
	first, err := c.newMachine("a", MachineOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.saveMachine(first); err != nil {
		t.Fatal(err)
	}
	second, err := c.newMachine("b", MachineOptions{})
	if err != nil || first.Address != "10.77.0.2" || second.Address != "10.77.0.3" {
		t.Errorf("addresses %s and %s, error %v", first.Address, second.Address, err)
	}
	if asked, err := c.newMachine("c", MachineOptions{Address: "10.77.0.99"}); err != nil || asked.Number != 99 {
		t.Errorf("got number %d, error %v; want 99", asked.Number, err)
	}
	for _, address := range []string{"10.77.0.2", "10.77.0.1", "10.77.0.200", "192.0.2.5"} {
		if _, err := c.newMachine("d", MachineOptions{Address: address}); err == nil {
			t.Errorf("address %s is taken, or none for a machine, and was given", address)
		}
	}
	list, err := c.machines()
	if err != nil || len(list) != 1 || list[0] != first {
		t.Errorf("listed %v, error %v", list, err)
	}
}

func TestMetadataServerMustBeReachable(t *testing.T) {
	if got, err := reachable("10.77.0.1:8080"); err != nil || got != "10.77.0.1:8080" {
		t.Errorf("got %s, error %v", got, err)
	}
	for _, bad := range []string{"127.0.0.1:8080", "10.77.0.1", "10.77.0.1:0", "nonsense"} {
		if _, err := reachable(bad); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// What kubeadm reads must be whole: each ConfigMap names what it is about.
func TestJoiningIsWhatKubeadmReads(t *testing.T) {
	content, err := render("joining.yaml", values{Options: live(), NodeIP: "10.77.0.1", CAPEM: "Q0E=", KubernetesVersion: "v1.36.3"})
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	var found []string
	for {
		var object corev1.ConfigMap
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if object.Kind != "ConfigMap" {
			continue
		}
		found = append(found, object.Namespace+"/"+object.Name)
		for key, text := range object.Data {
			var inner map[string]any
			if err := yaml.Unmarshal([]byte(text), &inner); err != nil || inner["kind"] == nil {
				t.Errorf("%s: %s is not an object: %v", object.Name, key, err)
			}
		}
	}
	slices.Sort(found)
	if want := []string{"kube-public/cluster-info", "kube-system/kubeadm-config", "kube-system/kubelet-config"}; !slices.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
}
