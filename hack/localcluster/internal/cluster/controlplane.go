package cluster

import (
	"fmt"
	"strconv"
	"time"
)

func controlPlane(layout Layout, options Options) []daemon {
	return []daemon{
		etcd(layout, options), apiServer(layout, options), controllerManager(layout, options), scheduler(layout, options),
	}
}

func etcd(layout Layout, options Options) daemon {
	client := fmt.Sprintf("https://127.0.0.1:%d", options.Ports.Etcd)
	peer := fmt.Sprintf("http://127.0.0.1:%d", options.Ports.EtcdPeer)
	return daemon{
		name: "etcd", phase: storing,
		args: flags(
			"name", "default",
			"data-dir", layout.data("etcd"),
			"listen-client-urls", client,
			"advertise-client-urls", client,
			"listen-peer-urls", peer,
			"initial-advertise-peer-urls", peer,
			"initial-cluster", "default="+peer,
			"client-cert-auth", "true",
			"trusted-ca-file", layout.pki("etcd-ca.crt"),
			"cert-file", layout.pki("etcd.crt"),
			"key-file", layout.pki("etcd.key"),
			"quota-backend-bytes", strconv.Itoa(4<<30),
			"auto-compaction-mode", "periodic",
			"auto-compaction-retention", "5m",
			// The data need not survive a crash of the machine, only of the process.
			"unsafe-no-fsync", "true",
			"log-level", "warn",
		),
	}
}

func apiServer(layout Layout, options Options) daemon {
	args := flags(
		"bind-address", options.address(),
		"advertise-address", options.address(),
		"secure-port", strconv.Itoa(options.Ports.API),
		"etcd-servers", fmt.Sprintf("https://127.0.0.1:%d", options.Ports.Etcd),
		"etcd-cafile", layout.pki("etcd-ca.crt"),
		"etcd-certfile", layout.pki("kube-apiserver-etcd-client.crt"),
		"etcd-keyfile", layout.pki("kube-apiserver-etcd-client.key"),
		"service-cluster-ip-range", options.ServiceCIDR,
		"client-ca-file", layout.pki("ca.crt"),
		"tls-cert-file", layout.pki("kube-apiserver.crt"),
		"tls-private-key-file", layout.pki("kube-apiserver.key"),
		"authorization-mode", "Node,RBAC",
		"authentication-config", layout.run("authentication.yaml"),
		"enable-admission-plugins", "NodeRestriction",
		"enable-bootstrap-token-auth", "true",
		"service-account-issuer", "https://kubernetes.default.svc.cluster.local",
		"service-account-key-file", layout.pki("service-account.key"),
		"service-account-signing-key-file", layout.pki("service-account.key"),
		"requestheader-client-ca-file", layout.pki("front-proxy-ca.crt"),
		"requestheader-allowed-names", "front-proxy-client",
		"requestheader-extra-headers-prefix", "X-Remote-Extra-",
		"requestheader-group-headers", "X-Remote-Group",
		"requestheader-username-headers", "X-Remote-User",
		"proxy-client-cert-file", layout.pki("front-proxy-client.crt"),
		"proxy-client-key-file", layout.pki("front-proxy-client.key"),
		"kubelet-certificate-authority", layout.pki("ca.crt"),
		"kubelet-client-certificate", layout.pki("kube-apiserver-kubelet-client.crt"),
		"kubelet-client-key", layout.pki("kube-apiserver-kubelet-client.key"),
		// The node's name is in no name server that the API server asks.
		"kubelet-preferred-address-types", "InternalIP",
		"allow-privileged", "true",
		"max-requests-inflight", "2000",
		"max-mutating-requests-inflight", "1000",
	)
	if options.Simulate {
		// Endpoints may not hold a loopback address; nothing would use them here.
		args = append(args, "--endpoint-reconciler-type=none")
	}
	if options.AuditLog {
		args = append(args, flags(
			"audit-policy-file", layout.run("audit-policy.yaml"),
			"audit-log-path", layout.log("audit"),
			"audit-log-format", "json",
		)...)
	}
	return daemon{name: "kube-apiserver", phase: serving, args: args, grace: 20 * time.Second}
}

func controllerManager(layout Layout, options Options) daemon {
	return controller(layout, "kube-controller-manager", options.Ports.ControllerManager,
		"root-ca-file", layout.pki("ca.crt"),
		"service-account-private-key-file", layout.pki("service-account.key"),
		"cluster-signing-cert-file", layout.pki("ca.crt"),
		"cluster-signing-key-file", layout.pki("ca.key"),
		"use-service-account-credentials", "true",
		"controllers", "*,bootstrapsigner,tokencleaner",
		"concurrent-job-syncs", "20",
	)
}

func scheduler(layout Layout, options Options) daemon {
	return controller(layout, "kube-scheduler", options.Ports.Scheduler)
}

// controller is a program of control loops, with a certificate and a kubeconfig of its name.
func controller(layout Layout, name string, port int, more ...string) daemon {
	kubeconfig := layout.kubeconfig(name)
	args := flags(
		"bind-address", "127.0.0.1",
		"secure-port", strconv.Itoa(port),
		"tls-cert-file", layout.pki(name+".crt"),
		"tls-private-key-file", layout.pki(name+".key"),
		"kubeconfig", kubeconfig,
		"authentication-kubeconfig", kubeconfig,
		"authorization-kubeconfig", kubeconfig,
		"client-ca-file", layout.pki("ca.crt"),
		"requestheader-client-ca-file", layout.pki("front-proxy-ca.crt"),
		// Alone, it needs no election, and must not give up when the machine is busy.
		"leader-elect", "false",
		// Tests of scale must measure the product, not the rate limits of Kubernetes' own clients.
		"kube-api-qps", "1000",
		"kube-api-burst", "1000",
	)
	return daemon{name: name, phase: controlling, args: append(args, flags(more...)...)}
}
