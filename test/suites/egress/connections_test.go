package egress_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
	"github.com/dcnlab/spot-training-operator/controllers/nodeagent"
	"github.com/dcnlab/spot-training-operator/controllers/trainingjob/build"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
	"github.com/dcnlab/spot-training-operator/test/harness/builders"
	"github.com/dcnlab/spot-training-operator/test/harness/networkpolicy"
)

// option is what an installation asks for beside the egress policies, by the value of the chart, as docs/network-policies.md names it.
type option string

const (
	always         option = ""
	cloud          option = "`networkPolicy.egress.cloud.enabled`"
	metadataServer option = "`networkPolicy.egress.cloud.metadataServer`"
	ofManager      option = "`networkPolicy.egress.manager`"
	ofJobService   option = "`networkPolicy.egress.jobService`"
)

// connection is one that the code opens.
type connection struct {
	// from, to and ports are the first cells of its row in docs/network-policies.md.
	from, to, ports string
	// option without which the policies forbid it.
	option option
	// code that opens it: the file, and what of a library it uses there.
	code []string
	// samples of it.
	samples []networkpolicy.Connection
}

// world is what an installation is in: the ends of connections.
type world struct {
	manager, jobService                 networkpolicy.End
	nodeAgent, pooledWorker             networkpolicy.End
	worker                              networkpolicy.End
	apiServerService, apiServer         networkpolicy.End
	dns, collector, postgres, redis     networkpolicy.End
	compute, computeV6, issuer          networkpolicy.End
	instance, instanceOutside, proxy    networkpolicy.End
	metadataServer, gkeMetadataServer   networkpolicy.End
	metricsPort, agentPort, servicePort int32
}

func newWorld(p pods, apiServers ...networkpolicy.End) *world {
	job := builders.TrainingJob("bert").Namespace("team-a").Obj()
	settings := build.Settings{WorkerImage: "worker:1", Namespace: p.namespace, IsolateJobs: true}
	w := &world{
		manager: pod(p.namespace, "10.1.0.2", p.manager), jobService: pod(p.namespace, "10.1.0.3", p.jobService),
		nodeAgent:    pod(p.namespace, "10.1.0.4", map[string]string{"app.kubernetes.io/name": nodeagent.Name}),
		pooledWorker: pod(p.namespace, "10.1.0.5", map[string]string{"app.kubernetes.io/name": "worker-pool"}),
		worker:       pod(job.Namespace, "10.1.0.6", build.Workers(job, settings, 0).Spec.Template.Labels),
		dns:          pod("kube-system", "10.1.0.7", map[string]string{"k8s-app": "kube-dns"}),
		collector:    pod("observability", "10.1.0.8", map[string]string{"app": "collector"}),
		postgres:     pod("data", "10.1.0.9", map[string]string{"app": "postgresql"}),
		redis:        pod("data", "10.1.0.10", map[string]string{"app": "redis"}),

		apiServerService: apiServers[0], apiServer: apiServers[len(apiServers)-1],
		compute: address("142.250.74.106"), computeV6: address("2a00:1450:4001:80e::200a"), issuer: address("203.0.113.10"),
		instance: address("10.128.0.7"), instanceOutside: address("34.76.1.2"), proxy: address("10.0.0.9"),
		metadataServer: address("169.254.169.254"), gkeMetadataServer: address("169.254.169.252"),
		metricsPort: job.Spec.Monitoring.MetricsPort, agentPort: build.AgentPort(job, settings), servicePort: 8000,
	}
	return w
}

func pod(namespace, ip string, labels map[string]string) networkpolicy.End {
	return networkpolicy.End{Namespace: namespace, Labels: labels, Address: netip.MustParseAddr(ip)}
}

func address(ip string) networkpolicy.End { return networkpolicy.End{Address: netip.MustParseAddr(ip)} }

func tcp(from, to networkpolicy.End, port int32) networkpolicy.Connection {
	return networkpolicy.Connection{From: from, To: to, Port: port}
}

func udp(from, to networkpolicy.End, port int32) networkpolicy.Connection {
	return networkpolicy.Connection{From: from, To: to, Port: port, Protocol: corev1.ProtocolUDP}
}

type samples = []networkpolicy.Connection

// connections are all that the programs of an installation open. TestEachConnectionOfTheCodeIsListed holds that none is missing.
func (w *world) connections() []connection {
	// What is in the network of its node has no policies.
	node := address("10.0.0.11")
	toAPIServer := func(from networkpolicy.End) samples {
		return samples{tcp(from, w.apiServerService, 443), tcp(from, w.apiServer, 6443)}
	}
	toDNS := func(from networkpolicy.End) samples { return samples{udp(from, w.dns, 53), tcp(from, w.dns, 53)} }
	return []connection{
		{
			"manager", "API server", "443, 6443", always,
			[]string{"internal/cmd/manager/manager.go: controllerruntime.GetConfig"}, toAPIServer(w.manager),
		},
		{"manager", "DNS of the cluster", "53", always, nil, toDNS(w.manager)},
		{
			"manager", "pods of TrainingJobs: metrics and checkpoint sidecar", "`monitoring.metricsPort` (8080), 9464", always,
			[]string{"internal/training/progress/scraper.go: http.Client", "internal/training/progress/scraper.go: http.Transport"},
			samples{tcp(w.manager, w.worker, w.metricsPort), tcp(w.manager, w.worker, w.agentPort), tcp(w.manager, w.worker, 1024), tcp(w.manager, w.worker, 65535)},
		},
		{
			"manager", "job service", "8000", always,
			[]string{
				"controllers/workerpool/trusting.go: http.Client", "controllers/workerpool/trusting.go: http.DefaultClient",
				"controllers/workerpool/trusting.go: http.DefaultTransport",
			},
			samples{tcp(w.manager, w.jobService, w.servicePort)},
		},
		{
			"manager", "Compute Engine and Google's tokens", "443", cloud,
			[]string{
				"internal/cloud/gcp/provider.go: http.Client", "internal/cloud/gcp/provider.go: http.DefaultTransport",
				"internal/cloud/gcp/provider.go: compute.NewService", "internal/cloud/gcp/credentials.go: http.Client",
			},
			samples{tcp(w.manager, w.compute, 443), tcp(w.manager, w.computeV6, 443)},
		},
		{
			"manager", "metadata server, for its own identity", "80; 988 on GKE", metadataServer,
			[]string{"internal/cloud/gcp/credentials.go: google.FindDefaultCredentials"},
			samples{tcp(w.manager, w.metadataServer, 80), tcp(w.manager, w.gkeMetadataServer, 988)},
		},
		{
			"manager", "instances that are joined over SSH", "`kubeadmJoinConfig.ssh.port` (22)", ofManager,
			[]string{"internal/nodejoin/ssh.go: net.Dialer", "internal/nodejoin/ssh.go: ssh.NewClientConn"},
			samples{tcp(w.manager, w.instance, 22)},
		},
		{
			"manager", "collector of traces", "4318", ofManager, []string{"internal/tracing/tracing.go: otlptracehttp.New"},
			samples{tcp(w.manager, w.collector, 4318)},
		},
		{"manager", "proxy of `HTTPS_PROXY`", "its own", ofManager, nil, samples{tcp(w.manager, w.proxy, 3128)}},
		{
			"job service", "API server", "443, 6443", always,
			[]string{
				"internal/cmd/jobservice/cluster.go: rest.InClusterConfig", "internal/cmd/jobservice/cluster.go: clientcmd.NewNonInteractiveDeferredLoadingClientConfig",
				"internal/cmd/jobservice/metrics.go: rest.HTTPClientFor", "internal/jobservice/runner/cluster.go: rest.HTTPClientFor",
			},
			toAPIServer(w.jobService),
		},
		{"job service", "DNS of the cluster", "53", always, nil, toDNS(w.jobService)},
		{
			"job service", "PostgreSQL of `DATABASE_URL`, and its read replica", "5432", ofJobService, []string{"internal/jobservice/sqlstore/postgres.go: pgxpool.NewWithConfig"},
			samples{tcp(w.jobService, w.postgres, 5432)},
		},
		{
			"job service", "Redis of `REDIS_URL`, all servers of it", "6379", ofJobService,
			[]string{"internal/jobservice/redisqueue/server.go: redis.NewClient", "internal/jobservice/redisqueue/server.go: redis.NewClusterClient"},
			samples{tcp(w.jobService, w.redis, 6379)},
		},
		{
			"job service", "Sentinels of `REDIS_URL`", "26379", ofJobService, []string{"internal/jobservice/redisqueue/server.go: redis.NewFailoverClient"},
			samples{tcp(w.jobService, w.redis, 26379)},
		},
		{
			"job service", "issuer of tokens, `--jwks`", "443", ofJobService, []string{"internal/jobservice/auth/keys.go: http.Client"},
			samples{tcp(w.jobService, w.issuer, 443)},
		},
		{
			"job service", "collector of traces", "4318", ofJobService, []string{"internal/tracing/tracing.go: otlptracehttp.New"},
			samples{tcp(w.jobService, w.collector, 4318)},
		},
		{"job service", "proxy of `HTTPS_PROXY`", "its own", ofJobService, nil, samples{tcp(w.jobService, w.proxy, 3128)}},
		{
			"node agent", "API server", "443, 6443", always,
			[]string{"internal/cmd/nodeagent/command.go: controllerruntime.GetConfig"}, toAPIServer(w.nodeAgent),
		},
		{
			"node agent", "metadata server", "80", always,
			[]string{"internal/nodenotice/metadata/request.go: http.Transport", "internal/nodenotice/metadata/request.go: net.Dialer"},
			samples{tcp(w.nodeAgent, w.metadataServer, 80)},
		},
		{"pooled workers", "job service", "8000", always, nil, samples{tcp(w.pooledWorker, w.jobService, w.servicePort)}},
		{
			"checkpoint sidecar of a job", "object store of the job, and where its credentials come from", "443", always,
			[]string{
				"internal/trainingcheckpoint/store/transport.go: http.Client", "internal/trainingcheckpoint/store/transport.go: http.Transport",
				"internal/trainingcheckpoint/store/transport.go: net.Dialer", "internal/trainingcheckpoint/store/gcs.go: http.Client",
				"internal/trainingcheckpoint/store/gcs.go: google.FindDefaultCredentials", "internal/trainingcheckpoint/store/s3.go: config.LoadDefaultConfig",
				"internal/trainingcheckpoint/store/azure.go: azidentity.NewDefaultAzureCredential",
			},
			samples{tcp(w.worker, w.compute, 443)},
		},
		{
			"init container of a job with `spec.source`", "git server, registry or file server of the code", "443; 22 by SSH", always,
			[]string{
				"internal/source/fetch/http.go: http.DefaultTransport", "internal/source/fetch/archive.go: http.Client",
				"internal/source/fetch/git.go: http.Client", "internal/source/fetch/git.go: http.NewClient", "internal/source/fetch/ssh.go: ssh.NewClient",
				"internal/source/fetch/oci.go: remote.Get",
			},
			samples{tcp(w.worker, w.compute, 443), tcp(w.worker, w.compute, 22)},
		},
		{
			"check of the network of a job", "other workers of the job", "all", always,
			[]string{"internal/training/preflight/probe.go: http.Client", "internal/training/preflight/probe.go: http.Transport"},
			samples{tcp(w.worker, w.worker, 29500), tcp(w.worker, w.worker, 65535)},
		},
		{
			"checkpoint agent of a node", "API server", "443, 6443", always,
			[]string{"internal/cmd/containercheckpoint/command.go: controllerruntime.GetConfig"}, toAPIServer(node),
		},
		{
			"checkpoint agent of a node", "kubelet of its node", "10250", always, []string{"internal/containercheckpoint/kubelet.go: rest.HTTPClientFor"},
			samples{tcp(node, node, 10250)},
		},
		{
			"checkpoint agent of a node", "registry of the image", "443", always,
			[]string{"internal/containercheckpoint/registry.go: http.DefaultTransport", "internal/containercheckpoint/registry.go: net.Dialer"},
			samples{tcp(node, w.compute, 443)},
		},
	}
}

// forbidden are connections that no program opens, and one that is taken over must not: with nothing but the egress policies, and with all options.
func (w *world) forbidden() (plain, withAll map[string]networkpolicy.Connection) {
	stranger, labelled := pod("team-b", "10.1.2.3", map[string]string{"app": "any"}), pod("team-b", "10.1.2.4", w.jobService.Labels)
	plain = map[string]networkpolicy.Connection{
		"manager to a pod of another namespace":                tcp(w.manager, stranger, 8080),
		"manager to a pod of another namespace by HTTPS":       tcp(w.manager, stranger, 443),
		"manager to a pod that has the job service's labels":   tcp(w.manager, labelled, 8000),
		"manager to the metrics of the job service":            tcp(w.manager, w.jobService, 8080),
		"manager to a program of a job below its ports":        tcp(w.manager, w.worker, 22),
		"manager to a worker by UDP":                           udp(w.manager, w.worker, w.metricsPort),
		"manager to the metrics of DNS":                        tcp(w.manager, w.dns, 9153),
		"manager to a DNS elsewhere":                           udp(w.manager, address("8.8.8.8"), 53),
		"manager to etcd beside the API server":                tcp(w.manager, w.apiServer, 2379),
		"manager to the kubelet of another node":               tcp(w.manager, address("10.0.0.12"), 10250),
		"manager to a machine of the network by HTTPS":         tcp(w.manager, address("10.0.0.12"), 443),
		"manager to the database":                              tcp(w.manager, w.postgres, 5432),
		"manager to the Internet by HTTP":                      tcp(w.manager, w.compute, 80),
		"manager to an instance by another port":               tcp(w.manager, w.instance, 6443),
		"job service to a worker":                              tcp(w.jobService, w.worker, w.metricsPort),
		"job service to a pod of another namespace":            tcp(w.jobService, stranger, 5432),
		"job service to the metadata server":                   tcp(w.jobService, w.metadataServer, 80),
		"job service to the metadata server of GKE":            tcp(w.jobService, w.gkeMetadataServer, 988),
		"job service to the Internet":                          tcp(w.jobService, w.compute, 443),
		"job service to an instance":                           tcp(w.jobService, w.instance, 22),
		"job service to the manager":                           tcp(w.jobService, w.manager, 9443),
		"manager to the metadata server by HTTPS":              tcp(w.manager, w.metadataServer, 443),
		"manager to a private address of version 6":            tcp(w.manager, address("fd00::1"), 443),
		"manager to an address of a link of version 6":         tcp(w.manager, address("fe80::1"), 443),
		"manager to the range that carriers share by HTTPS":    tcp(w.manager, address("100.64.0.1"), 443),
		"manager to a private address of a home by HTTPS":      tcp(w.manager, address("192.168.1.1"), 443),
		"manager to a private address of a company by HTTPS":   tcp(w.manager, address("172.20.0.1"), 443),
		"manager to an address of a test network by HTTPS":     tcp(w.manager, address("198.18.0.1"), 443),
		"manager to an address that GKE gives pods, by HTTPS":  tcp(w.manager, address("240.0.0.1"), 443),
		"manager to a pod of another namespace by its webhook": tcp(w.manager, stranger, 9443),
	}
	withAll = plain
	plain = map[string]networkpolicy.Connection{
		"manager to the Internet":                         tcp(w.manager, w.compute, 443),
		"manager to the Internet by version 6":            tcp(w.manager, w.computeV6, 443),
		"manager to the metadata server":                  tcp(w.manager, w.metadataServer, 80),
		"manager to an instance over SSH":                 tcp(w.manager, w.instance, 22),
		"manager to an instance over SSH, from outside":   tcp(w.manager, w.instanceOutside, 22),
		"job service to a database that nothing named":    tcp(w.jobService, w.postgres, 5432),
		"job service to an issuer that nothing named":     tcp(w.jobService, w.issuer, 443),
		"job service to a collector that nothing named":   tcp(w.jobService, w.collector, 4318),
		"manager to a proxy that nothing named":           tcp(w.manager, w.proxy, 3128),
		"manager to a collector that nothing named":       tcp(w.manager, w.collector, 4318),
		"manager to the metadata server of GKE, likewise": tcp(w.manager, w.gkeMetadataServer, 988),
	}
	for name, c := range withAll {
		plain[name] = c
	}
	return plain, withAll
}

// Administrators read there what they have to allow.
func TestTheDocumentationHasEachConnection(t *testing.T) {
	page := networkPage(t)
	listed := map[string]bool{}
	for _, c := range newWorld(pods{namespace: "operators"}, address("10.96.0.1")).connections() {
		row := "| " + c.from + " | " + c.to + " | " + c.ports + " |"
		said := row
		if c.option != always {
			said += " " + string(c.option) + " |"
		}
		assert.True(t, strings.Contains(page, "\n"+said), "docs/network-policies.md has no row %s", said)
		listed[row] = true
	}
	_, table, found := strings.Cut(page, "| from | to | port | allowed by |\n|---|---|---|---|\n")
	require.True(t, found)
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(line, "|")
		assert.True(t, listed[strings.Join(cells[:4], "|")+"|"], "no code opens what the row says: %s", line)
	}
}

func networkPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(apiserver.Root(), "docs", "network-policies.md"))
	require.NoError(t, err)
	return string(text)
}

// The policies name the pods of jobs by a label.
func TestWorkersHaveTheLabelThatThePoliciesSelect(t *testing.T) {
	assert.Equal(t, "training-job", mlv1.LabelTrainingJob)
}
