package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

var (
	//go:embed audit-policy.yaml
	auditPolicy []byte
	//go:embed kwok.yaml
	kwokConfiguration string
)

const (
	// namespace holds the jobs that are measured, warmUp those before them.
	namespace = "bench"
	warmUp    = "warm-up"

	// managerUser is who the manager is to the API server: the user of its ServiceAccount when it is installed.
	managerUser = "system:serviceaccount:" + managerNamespace + ":spot-training-operator-controller-manager"

	managerNamespace = "spot-training-operator-system"

	// nodeManager is who kwok is to the API server.
	nodeManager = "kwok"
)

// clusterOptions say what a simulated cluster is like.
type clusterOptions struct {
	// policy installs the admission policy of config/admission, as the default installation does.
	policy bool
	// audit keeps the audit log.
	audit bool
	pods  podLife
	// bare starts neither controllers nor a scheduler nor the simulation of nodes: what is measured plays their part.
	bare bool
}

// podLife says how simulated pods live.
type podLife struct {
	// running is the time until they run, ending the time from then to their end: at least the first, at most the second.
	running, ending [2]time.Duration
	// lasting pods do not end.
	lasting bool
	// loopback gives them all the address 127.0.0.1, where the metrics server of this program answers for them.
	loopback bool
}

// cluster is a control plane with simulated nodes.
type cluster struct {
	settings settings
	options  clusterOptions
	folder   string
	env      *envtest.Environment
	config   *rest.Config
	client   client.Client
	parts    []*process
	kwok     *process
}

// startCluster starts a cluster. The caller stops it, also after an error.
func startCluster(ctx context.Context, s settings, options clusterOptions) (*cluster, error) {
	folder, err := os.MkdirTemp(s.work, "cluster-")
	if err != nil {
		return nil, err
	}
	c := &cluster{settings: s, options: options, folder: folder}
	steps := []func(context.Context) error{c.startAPIServer, c.startControllers, c.makeNodes, c.install, c.startNodes}
	if options.bare {
		steps = []func(context.Context) error{c.startAPIServer, c.makeNodes, c.install}
	}
	for _, step := range steps {
		if err := errors.Join(step(ctx), ctx.Err()); err != nil {
			return c, fmt.Errorf("start a cluster: %w", err)
		}
	}
	return c, nil
}

func (c *cluster) stop() {
	if c == nil {
		return
	}
	c.kwok.stop()
	for _, part := range c.parts {
		part.stop()
	}
	if c.env != nil {
		if err := c.env.Stop(); err != nil {
			say("stop the API server: %v", err)
		}
	}
}

func (c *cluster) startAPIServer(context.Context) error {
	c.env = &envtest.Environment{
		BinaryAssetsDirectory:    c.settings.assets,
		CRDDirectoryPaths:        []string{filepath.Join("config", "crd", "bases")},
		ErrorIfCRDPathMissing:    true,
		ControlPlaneStartTimeout: 2 * time.Minute,
		ControlPlaneStopTimeout:  30 * time.Second,
	}
	server := c.env.ControlPlane.GetAPIServer()
	// A pod needs its ServiceAccount to exist, as in any cluster. Nodes are ready when they are made. What is measured is
	// the work, not how it is held back.
	server.Configure().
		Set("max-requests-inflight", "2000").
		Set("max-mutating-requests-inflight", "1000").
		Set("disable-admission-plugins", "TaintNodesByCondition").
		Set("endpoint-reconciler-type", "none")
	if c.options.audit {
		policy := filepath.Join(c.folder, "audit-policy.yaml")
		if err := os.WriteFile(policy, auditPolicy, 0o644); err != nil {
			return err
		}
		server.Configure().Set("audit-policy-file", policy).Set("audit-log-path", c.auditLog())
	}
	if c.options.bare {
		tokens, err := c.writeTokens()
		if err != nil {
			return err
		}
		server.Configure().Set("token-auth-file", tokens)
	}
	config, err := c.env.Start()
	if err != nil {
		return err
	}
	c.config = rest.CopyConfig(config)
	if c.options.bare {
		c.config = rest.AnonymousClientConfig(config)
		c.config.BearerToken = tokenOf(loadUser)
	}
	c.config.QPS = -1
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), mlv1.AddToScheme(scheme), aiplatformv1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	c.client, err = client.New(c.config, client.Options{Scheme: scheme})
	return err
}

// auditLog is the path of the audit log.
func (c *cluster) auditLog() string { return filepath.Join(c.folder, "audit.log") }

// kubeconfig writes a kubeconfig for a user of its own and returns its path.
func (c *cluster) kubeconfig(name string, groups ...string) (string, error) {
	text, err := c.kubeconfigOf(name, groups)
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.folder, strings.ReplaceAll(name, ":", "-")+".kubeconfig") // KUBECONFIG separates paths by colons
	return path, os.WriteFile(path, text, 0o600)
}

func (c *cluster) startControllers(context.Context) error {
	for program, arguments := range map[string][]string{
		"kube-controller-manager": {
			// Nodes send no heartbeats, which must have no effect.
			"--controllers=*,-node-lifecycle-controller,-node-ipam-controller,-device-taint-eviction-controller",
			"--concurrent-job-syncs=20", "--use-service-account-credentials=true",
		},
		"kube-scheduler": nil,
	} {
		kubeconfig, err := c.kubeconfig("system:" + program)
		if err != nil {
			return err
		}
		arguments = append(arguments, "--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig,
			"--authorization-kubeconfig="+kubeconfig, "--leader-elect=false", "--secure-port=0",
			"--kube-api-qps=1000", "--kube-api-burst=1000")
		part, err := startProcess(c.folder, program, filepath.Join(c.settings.assets, program), nil, arguments...)
		if err != nil {
			return err
		}
		c.parts = append(c.parts, part)
	}
	return nil
}

// startNodes starts the simulation of nodes and pods.
func (c *cluster) startNodes(context.Context) error {
	kubeconfig, err := c.kubeconfig(nodeManager, "system:masters")
	if err != nil {
		return err
	}
	life := c.options.pods
	fixedIP, endsIn := `""`, "Running"
	if life.loopback {
		fixedIP = `"127.0.0.1"`
	}
	if life.lasting {
		endsIn = "Never"
	}
	milliseconds := func(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }
	text := strings.NewReplacer(
		"RUN_DELAY", milliseconds(life.running[0]), "RUN_LATEST", milliseconds(life.running[1]),
		"END_DELAY", milliseconds(life.ending[0]), "END_LATEST", milliseconds(life.ending[1]),
		"FIXED_IP", fixedIP, "ENDS_IN_PHASE", endsIn,
	).Replace(kwokConfiguration)
	path := filepath.Join(c.folder, "kwok.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return err
	}
	c.kwok, err = startProcess(c.folder, "kwok", filepath.Join(c.settings.assets, "kwok"), nil,
		"--kubeconfig="+kubeconfig, "--config="+path, "--manage-all-nodes=true")
	return err
}

// change lets the pods live otherwise from now on.
func (c *cluster) change(ctx context.Context, pods podLife) error {
	c.kwok.stop()
	c.options.pods = pods
	return c.startNodes(ctx)
}

// makeNodes creates the nodes, and the namespaces with their ServiceAccounts.
func (c *cluster) makeNodes(ctx context.Context) error {
	for i := range c.settings.nodes {
		name := fmt.Sprintf("node-%d", i)
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
		if err := c.client.Create(ctx, node); err != nil {
			return err
		}
		capacity := corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("1000"), corev1.ResourceMemory: resource.MustParse("1Ti"),
			corev1.ResourcePods: resource.MustParse("10000"),
		}
		node.Status = corev1.NodeStatus{Capacity: capacity, Allocatable: capacity}
		if c.options.bare { // nothing else says so
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Simulated"}}
		}
		if err := c.client.Status().Update(ctx, node); err != nil {
			return err
		}
	}
	for _, name := range []string{warmUp, namespace} {
		if err := c.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
		if c.options.bare {
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "default"}}
			if err := c.client.Create(ctx, account); err != nil {
				return err
			}
			continue
		}
		key := client.ObjectKey{Namespace: name, Name: "default"}
		err := c.await(ctx, "namespaces have a ServiceAccount", time.Minute, func() (bool, error) {
			err := c.client.Get(ctx, key, &corev1.ServiceAccount{})
			return err == nil, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// install installs what the manager needs: its role and, as an option, the admission policy.
func (c *cluster) install(ctx context.Context) error {
	if err := c.create(ctx, filepath.Join("config", "rbac", "role.yaml")); err != nil {
		return err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "manager"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "manager-role"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: managerUser}},
	}
	if err := c.client.Create(ctx, binding); err != nil {
		return err
	}
	if !c.options.policy {
		return nil
	}
	if err := c.create(ctx, filepath.Join("config", "admission", "replica_id_policy.yaml")); err != nil {
		return err
	}
	return c.await(ctx, "the admission policy acts", time.Minute, func() (bool, error) {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: warmUp, Labels: map[string]string{
				mlv1.LabelTrainingJob: "probe", "batch.kubernetes.io/job-completion-index": "0",
			}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "probe", Image: "probe"}}},
		}
		err := c.client.Create(ctx, pod, client.DryRunAll)
		return err == nil && pod.Labels[mlv1.LabelReplicaID] == "0", err
	})
}

// create creates the objects in a YAML file.
func (c *cluster) create(ctx context.Context, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := documents.Decode(object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		if len(object.Object) == 0 {
			continue
		}
		if err := c.client.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create what is in %s: %w", path, err)
		}
	}
}

// await waits until something is so, while the parts of the cluster and the others run.
func (c *cluster) await(ctx context.Context, what string, limit time.Duration, met func() (bool, error), others ...*process) error {
	parts := slices.Concat(others, c.parts)
	if c.kwok != nil {
		parts = append(parts, c.kwok)
	}
	return await(ctx, what, limit, parts, met)
}
