package cluster

import "os"

func node(layout Layout, options Options) []daemon {
	path := "PATH=" + searchPath(layout, os.Getenv("PATH"))
	return []daemon{
		{
			name: "containerd", program: "containerd", phase: serving, env: []string{path},
			args: flags("config", layout.run("containerd.toml"), "log-level", "warn"),
		},
		{
			name: "registry", program: "registry", phase: serving,
			args: []string{"serve", layout.run("registry.yml")},
			env:  []string{"OTEL_TRACES_EXPORTER=none"},
		},
		{
			name: "coredns", program: "coredns", phase: working,
			args: []string{"-conf", layout.run("Corefile")},
		},
		{
			name: "kube-proxy", program: "kube-proxy", phase: working, env: []string{path},
			args: flags("config", layout.run("kube-proxy.yaml")),
		},
		{
			name: "kubelet", program: "kubelet", phase: working, env: []string{path},
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
	args := flags("kubeconfig", layout.Kubeconfig(), "server-address", loopback(options.Ports.Kwok), "v", "WARN")
	for _, config := range configs {
		args = append(args, "--config="+config)
	}
	// kwok keeps a working folder below HOME.
	env := []string{"HOME=" + layout.run("kwok"), "KWOK_WORKDIR=" + layout.run("kwok")}
	return daemon{name: "kwok", program: "kwok", phase: working, args: args, env: env}
}
