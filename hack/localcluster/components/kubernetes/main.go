// Command kubernetes is every program of a Kubernetes node and control plane in one binary.
//
// It behaves as the program that argv[0] names, so a folder of links to it is a complete set of
// Kubernetes binaries (and, with the links etcd, kube-apiserver and kubectl, a KUBEBUILDER_ASSETS
// folder for envtest). Sharing one binary links the common packages once: one build of some minutes
// and 200 MB instead of eight builds and more than 600 MB.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// programs maps the base name of argv[0] to the program it stands for. A program does not return
// when it has an exit code of its own to report.
var programs = map[string]func(args []string){
	"etcd":                    etcd,
	"kube-apiserver":          kubeAPIServer,
	"kube-controller-manager": kubeControllerManager,
	"kube-scheduler":          kubeScheduler,
	"kube-proxy":              kubeProxy,
	"kubelet":                 kubelet,
	"kubeadm":                 kubeadm,
	"kubectl":                 kubectl,
}

func main() {
	name := filepath.Base(os.Args[0])
	args := os.Args
	// "kubernetes kubectl get pods" works where links are not available.
	if _, known := programs[name]; !known && len(args) > 1 {
		name, args = args[1], args[1:]
	}
	program, known := programs[name]
	if !known {
		fmt.Fprintf(os.Stderr, "call this binary by (or with) the name of one of: %s\n", strings.Join(names(), ", "))
		os.Exit(2)
	}
	os.Args = args
	program(args)
}

// names returns the names of all programs, sorted.
func names() []string {
	all := make([]string, 0, len(programs))
	for name := range programs {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}
