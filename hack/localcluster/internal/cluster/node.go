package cluster

import (
	"fmt"
	"os"
)

func node(layout Layout, options Options) []daemon {
	// The cluster's programs first: containerd finds its shim there, runc a criu.
	path := "PATH=" + layout.Bin + ":" + os.Getenv("PATH")
	return []daemon{
		{
			name: "containerd", phase: serving, env: []string{path},
			args: flags("config", layout.run("containerd.toml"), "log-level", "warn"),
		},
		{
			name: "registry", phase: serving,
			args: []string{"serve", layout.run("registry.yml")},
			env:  []string{"OTEL_TRACES_EXPORTER=none"},
		},
		{
			name: "coredns", phase: working,
			args: []string{"-conf", layout.run("Corefile")},
		},
		{
			name: "kube-proxy", phase: working, env: []string{path},
			args: flags("config", layout.run("kube-proxy.yaml")),
		},
		{
			name: "kubelet", phase: working, env: []string{path},
			args: flags(
				"config", layout.run("kubelet.yaml"),
				"kubeconfig", layout.kubeconfig("kubelet"),
				"root-dir", layout.data("kubelet"),
				"cert-dir", layout.data("kubelet", "pki"),
				"hostname-override", NodeName,
				"node-ip", options.NodeIP,
			),
		},
	}
}

// simulator returns kwok, which simulates all kubelets.
func simulator(layout Layout, options Options) daemon {
	configs := append([]string{layout.run("kwok.yaml")}, options.Simulation.Stages...)
	args := flags("kubeconfig", layout.Kubeconfig(), "server-address", fmt.Sprintf("127.0.0.1:%d", options.Ports.Kwok), "v", "WARN")
	for _, config := range configs {
		args = append(args, "--config="+config)
	}
	// kwok keeps a working folder below HOME.
	env := []string{"HOME=" + layout.run("kwok"), "KWOK_WORKDIR=" + layout.run("kwok")}
	return daemon{name: "kwok", phase: working, args: args, env: env}
}
