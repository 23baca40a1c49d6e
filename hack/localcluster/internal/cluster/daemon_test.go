package cluster

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func byName(t *testing.T, options Options) map[string]daemon {
	t.Helper()
	list, err := daemons(Layout{State: "/state", Bin: "/bin"}, options)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]daemon{}
	for _, d := range list {
		if _, twice := all[d.Name]; twice {
			t.Errorf("two processes are called %s", d.Name)
		}
		all[d.Name] = d
	}
	return all
}

func TestDaemonsOfEachKind(t *testing.T) {
	common := []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "provisioner"}
	for _, test := range []struct {
		name    string
		options Options
		want    []string
	}{
		{name: "live", options: live(), want: append([]string{"containerd", "registry", "coredns", "kube-proxy", "kubelet"}, common...)},
		{name: "simulated", options: simulated(), want: append([]string{"kwok"}, common...)},
	} {
		t.Run(test.name, func(t *testing.T) {
			all := byName(t, test.options)
			if len(all) != len(test.want) {
				t.Errorf("%d processes, want %v", len(all), test.want)
			}
			for _, name := range test.want {
				if _, ok := all[name]; !ok {
					t.Errorf("no process %s", name)
				}
			}
			if slices.Index(phases, all["etcd"].Phase) >= slices.Index(phases, all["kube-apiserver"].Phase) {
				t.Error("etcd would be stopped before the API server, which then does not end")
			}
		})
	}
}

func TestArguments(t *testing.T) {
	extra := live()
	extra.ExtraArgs = map[string][]string{"kube-apiserver": {"--v=4"}}
	audited := simulated()
	audited.AuditLog = true
	staged := simulated()
	staged.Simulation.Stages = []string{"/my/stages.yaml"}
	for _, test := range []struct {
		name    string
		options Options
		daemon  string
		want    string
	}{
		{"live API server", live(), "kube-apiserver", "--bind-address=10.77.0.1"},
		{"simulated API server", simulated(), "kube-apiserver", "--bind-address=127.0.0.1"},
		{"simulated port", simulated(), "kube-apiserver", "--secure-port=16443"},
		{"audit log", audited, "kube-apiserver", "--audit-log-path=/state/logs/audit.log"},
		{"extra argument", extra, "kube-apiserver", "--v=4"},
		{"rate", live(), "kube-controller-manager", "--kube-api-qps=1000"},
		{"job syncs", live(), "kube-controller-manager", "--concurrent-job-syncs=20"},
		{"rate of the scheduler", live(), "kube-scheduler", "--kube-api-qps=1000"},
		{"own stages", staged, "kwok", "--config=/my/stages.yaml"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := byName(t, test.options)[test.daemon].Args; !slices.Contains(got, test.want) {
				t.Errorf("%s lacks in %v", test.want, got)
			}
		})
	}
	for _, arg := range byName(t, live())["kube-apiserver"].Args {
		if strings.HasPrefix(arg, "--audit") {
			t.Errorf("%s although no audit log was asked for", arg)
		}
	}
}

func TestValidate(t *testing.T) {
	change := func(f func(*Options)) Options {
		o := simulated()
		f(&o)
		return o
	}
	for _, test := range []struct {
		name    string
		options Options
		want    string
	}{
		{name: "live", options: live()},
		{name: "simulated", options: simulated()},
		{name: "loopback node", options: change(func(o *Options) { o.NodeIP = "127.0.0.1" }), want: "--node-ip"},
		{name: "bad network", options: change(func(o *Options) { o.PodCIDR = "10.78.0.0" }), want: "--pod-cidr"},
		{name: "no nodes", options: change(func(o *Options) { o.Simulation.Nodes = 0 }), want: "--nodes"},
		{name: "mirrors", options: change(func(o *Options) { o.Mirrors = []string{"registry.example.com", "localhost:5001"} })},
		{name: "mirror with a path", options: change(func(o *Options) { o.Mirrors = []string{"registry.example.com/team"} }), want: "--mirror"},
		{name: "mirror that is no host", options: change(func(o *Options) { o.Mirrors = []string{"team"} }), want: "--mirror"},
		{name: "unknown program", options: change(func(o *Options) { o.ExtraArgs = map[string][]string{"apiserver": {"--v=4"}} }), want: "--extra-arg apiserver"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.options.Validate()
			if (err != nil) != (test.want != "") {
				t.Fatalf("error %v, want %q", err, test.want)
			}
			if err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%q does not say %q", err, test.want)
			}
		})
	}
}

func TestPortsOfLiveAndSimulatedDoNotMeet(t *testing.T) {
	taken := map[uint16]bool{}
	for _, options := range []Options{live(), simulated()} {
		list, err := daemons(Layout{State: "/state"}, options)
		if err != nil {
			t.Fatal(err)
		}
		for _, port := range (Cluster{Options: options}).ports(list) {
			if taken[port.Address.Port()] {
				t.Errorf("port %d of %s is used twice", port.Address.Port(), port.Purpose)
			}
			taken[port.Address.Port()] = true
		}
	}
}

func TestOptionsAreSaved(t *testing.T) {
	layout := Layout{State: t.TempDir()}
	if _, ok, err := LoadOptions(layout); ok || err != nil {
		t.Fatalf("before: found %t, error %v", ok, err)
	}
	want := simulated()
	if err := want.save(layout); err != nil {
		t.Fatal(err)
	}
	got, ok, err := LoadOptions(layout)
	if err != nil || !ok || !maps.Equal(got.Ports, want.Ports) || got.Simulation.Nodes != 2 || !got.Simulate {
		t.Errorf("got %+v (found %t, error %v), want %+v", got, ok, err, want)
	}
}

func TestNthAddress(t *testing.T) {
	for cidr, want := range map[string]string{"10.96.0.0/16": "10.96.0.1", "10.96.3.7/24": "10.96.3.1"} {
		if got, err := nthAddress(cidr, 1); err != nil || got != want {
			t.Errorf("%s: got %s, error %v; want %s", cidr, got, err, want)
		}
	}
}
