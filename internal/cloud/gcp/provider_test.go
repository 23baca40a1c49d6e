package gcp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/cloud/gcp"
	"github.com/dcnlab/spot-training-operator/test/fakes/fakegce"
)

const zone = "us-central1-a"

func newProvider(t *testing.T, server *fakegce.Server, change ...func(*gcp.Options)) *gcp.Provider {
	t.Helper()
	opts := gcp.Options{
		Project: server.Project(), Credentials: server.CredentialsJSON(), Endpoint: server.URL(),
		UserAgent: "test", Rate: 10000, Burst: 1000,
	}
	for _, c := range change {
		c(&opts)
	}
	provider, err := gcp.New(t.Context(), opts)
	require.NoError(t, err)
	return provider
}

func wish(name string, change ...func(*cloud.InstanceSpec)) cloud.InstanceSpec {
	spec := cloud.InstanceSpec{
		Name: name, Zone: zone, RequestID: requestID(name), MachineType: "n1-standard-4", Spot: true,
		Image: "projects/p/global/images/family/node", DiskGB: 50, DiskType: "pd-ssd",
		GPUType: "nvidia-tesla-t4", GPUs: 1, Network: "training", Subnetwork: "nodes", NetworkTags: []string{"k8s-node"},
		ServiceAccount: "node@p.iam.gserviceaccount.com",
		Labels:         map[string]string{"training-dcnlab-com-vm": "t4"},
		Metadata:       map[string]string{"startup-script": "#!/bin/sh\n", "ssh-keys": "spot:ssh-ed25519 AAAA"},
	}
	for _, c := range change {
		c(&spec)
	}
	return spec
}

// requestID that is the same for the same words.
func requestID(words string) string {
	sum := uint64(14695981039346656037)
	for _, b := range []byte(words) {
		sum = (sum ^ uint64(b)) * 1099511628211
	}
	return fmt.Sprintf("%08x-0000-4000-8000-%012x", uint32(sum), sum>>16)
}

func TestAnInstanceFromItsCreationToItsEnd(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	server := fakegce.Start(t, fakegce.Options{Clock: clock, Latency: fakegce.Latency{
		Accept: time.Second, Provision: 5 * time.Second, Stage: 10 * time.Second, Stop: 30 * time.Second,
	}})
	provider := newProvider(t, server)
	ctx := t.Context()

	op, err := provider.Create(ctx, wish("t4-abcde"))
	require.NoError(t, err)
	assert.False(t, op.Done, "Create does not wait")
	assert.Equal(t, zone, op.Zone)

	state := func() string {
		found, err := provider.Get(ctx, zone, "t4-abcde")
		require.NoError(t, err)
		return found.State
	}
	assert.Equal(t, "PROVISIONING", state())
	clock.Step(6 * time.Second)
	assert.Equal(t, "STAGING", state())
	clock.Step(10 * time.Second)
	assert.Equal(t, "RUNNING", state())
	op, err = provider.Operation(ctx, op)
	require.NoError(t, err)
	assert.True(t, op.Done)
	require.NoError(t, op.Err)

	listed, err := provider.List(ctx, zone, map[string]string{"training-dcnlab-com-vm": "t4"})
	require.NoError(t, err)
	require.Len(t, listed, 1)
	instance := listed[0]
	assert.Equal(t, "t4-abcde", instance.Name)
	assert.Equal(t, "n1-standard-4", instance.MachineType)
	assert.True(t, instance.Spot)
	assert.NotEmpty(t, instance.ID)
	assert.NotEmpty(t, instance.InternalIP)
	assert.NotEmpty(t, instance.ExternalIP)
	assert.Equal(t, map[string]string{"training-dcnlab-com-vm": "t4"}, instance.Labels)
	assert.Equal(t, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), instance.Created)

	seen, ok := server.Instance("t4-abcde")
	require.True(t, ok)
	assert.Equal(t, map[string]string{
		"startup-script": "#!/bin/sh\n", "ssh-keys": "spot:ssh-ed25519 AAAA", "enable-guest-attributes": "TRUE",
	}, seen.Metadata)
	assert.Equal(t, int64(1), seen.GPUs)

	op, err = provider.Delete(ctx, zone, "t4-abcde", requestID("delete"))
	require.NoError(t, err)
	assert.False(t, op.Done)
	assert.Equal(t, "STOPPING", state())
	clock.Step(31 * time.Second)
	op, err = provider.Operation(ctx, op)
	require.NoError(t, err)
	assert.True(t, op.Done)
	_, err = provider.Get(ctx, zone, "t4-abcde")
	assert.Equal(t, cloud.NotFound, cloud.ClassOf(err), "%v", err)
	_, err = provider.Delete(ctx, zone, "t4-abcde", requestID("again"))
	assert.Equal(t, cloud.NotFound, cloud.ClassOf(err), "%v", err)
}

func TestKindsOfInstancesThatGoogleTakes(t *testing.T) {
	server := fakegce.Start(t, fakegce.Options{})
	provider := newProvider(t, server)
	for name, change := range map[string]func(*cloud.InstanceSpec){
		"spot-gpu":     func(*cloud.InstanceSpec) {},
		"spot-cpu":     func(s *cloud.InstanceSpec) { s.GPUs = 0; s.GPUType = "" },
		"standard-gpu": func(s *cloud.InstanceSpec) { s.Spot = false },
		"standard-cpu": func(s *cloud.InstanceSpec) { s.Spot = false; s.GPUs = 0; s.GPUType = "" },
		"bundled":      func(s *cloud.InstanceSpec) { s.Spot = false; s.GPUs = 0; s.MachineType = "g2-standard-8" },
		"bundled-a100": func(s *cloud.InstanceSpec) { s.Spot = false; s.GPUs = 0; s.MachineType = "a2-highgpu-1g" },
		"little-said": func(s *cloud.InstanceSpec) {
			*s = cloud.InstanceSpec{Name: s.Name, Zone: zone, RequestID: s.RequestID, MachineType: "e2-standard-2", Image: s.Image}
		},
		"whole-network": func(s *cloud.InstanceSpec) {
			s.Network = "projects/host/global/networks/shared"
			s.Subnetwork = "projects/host/regions/us-central1/subnetworks/nodes"
		},
	} {
		t.Run(name, func(t *testing.T) {
			op, err := provider.Create(t.Context(), wish(name, change))
			require.NoError(t, err)
			op, err = provider.Operation(t.Context(), op)
			require.NoError(t, err)
			assert.True(t, op.Done)
			require.NoError(t, op.Err)
		})
	}
}

func TestARepeatedRequestCreatesOneInstance(t *testing.T) {
	for name, fault := range map[string]fakegce.Fault{
		"the answer was lost":                {Method: "compute.instances.insert", Times: 1, LoseAnswer: true},
		"the request was lost":               {Method: "compute.instances.insert", Times: 1, LoseRequest: true},
		"the request was delivered twice":    {Method: "compute.instances.insert", Times: 1, Twice: true},
		"the server failed after some time":  {Method: "compute.instances.insert", Times: 1, Status: 503, Reason: "backendError", Message: "Backend Error"},
		"nothing went wrong the first time ": {Method: "compute.instances.get", Times: 1, Status: 500},
	} {
		t.Run(name, func(t *testing.T) {
			server := fakegce.Start(t, fakegce.Options{})
			provider := newProvider(t, server)
			server.Inject(fault)
			first, err := provider.Create(t.Context(), wish("one"))
			if err != nil {
				assert.Equal(t, cloud.Transient, cloud.ClassOf(err), "%v", err)
			}
			second, err := provider.Create(t.Context(), wish("one"))
			require.NoError(t, err)
			if first.Name != "" {
				assert.Equal(t, first.Name, second.Name, "the same id has the same operation")
			}
			assert.Len(t, server.History(), 1)
		})
	}
}

func TestWhatRefusalsMean(t *testing.T) {
	for name, test := range map[string]struct {
		arrange func(*fakegce.Server)
		spec    func(*cloud.InstanceSpec)
		class   cloud.Class
		says    string
	}{
		"stockout":             {arrange: func(s *fakegce.Server) { s.StockOut(zone) }, class: cloud.Stockout, says: "ZONE_RESOURCE_POOL_EXHAUSTED"},
		"stockout with reason": {arrange: func(s *fakegce.Server) { s.SetStock(fakegce.Stock{Zone: zone, Details: true}) }, class: cloud.Stockout, says: "_WITH_DETAILS"},
		"GPU quota":            {arrange: func(s *fakegce.Server) { s.SetQuota("us-central1", "PREEMPTIBLE_NVIDIA_T4_GPUS", 0) }, class: cloud.Quota, says: "PREEMPTIBLE_NVIDIA_T4_GPUS"},
		"no permission":        {arrange: func(s *fakegce.Server) { s.Deny("compute.instances.insert") }, class: cloud.Permission, says: "compute.instances.create"},
		"API not enabled": {arrange: func(s *fakegce.Server) {
			s.Inject(fakegce.Fault{Status: 403, Reason: "accessNotConfigured", Message: "Compute Engine API has not been used in project 1 before or it is disabled."})
		}, class: cloud.Permission, says: "disabled"},
		"policy of the organization": {arrange: func(s *fakegce.Server) {
			s.Inject(fakegce.Fault{Status: 412, Reason: "conditionNotMet", Message: "Constraint constraints/compute.vmExternalIpAccess violated"})
		}, class: cloud.Permission, says: "vmExternalIpAccess"},
		"rate": {arrange: func(s *fakegce.Server) { rateLimit(s, 7*time.Second) }, class: cloud.RateLimited, says: "Quota exceeded for quota metric"},
		"quota over HTTP": {arrange: func(s *fakegce.Server) {
			s.Inject(fakegce.Fault{Status: 403, Reason: "quotaExceeded", Message: "Quota 'CPUS' exceeded."})
		}, class: cloud.Quota, says: "CPUS"},
		"no machine type": {spec: func(s *cloud.InstanceSpec) { s.MachineType = "n9-standard-4" }, class: cloud.Invalid, says: "machineType"},
		"no image":        {arrange: func(s *fakegce.Server) { s.MissImage("projects/p/global/images/family/node") }, class: cloud.Invalid, says: "images/family/node"},
		"no such zone":    {spec: func(s *cloud.InstanceSpec) { s.Zone = "mars-north1-a" }, class: cloud.Invalid, says: "Unknown zone"},
		"GPU and machine": {spec: func(s *cloud.InstanceSpec) { s.MachineType = "n2-standard-4" }, class: cloud.Invalid, says: "not compatible"},
		"label":           {spec: func(s *cloud.InstanceSpec) { s.Labels = map[string]string{"vm": "Upper"} }, class: cloud.Invalid, says: "vm=Upper"},
		"server": {arrange: func(s *fakegce.Server) {
			s.Inject(fakegce.Fault{Status: 500, Reason: "backendError", Message: "Internal Error"})
		}, class: cloud.Transient, says: "Internal Error"},
		"connection": {arrange: func(s *fakegce.Server) { s.Inject(fakegce.Fault{LoseRequest: true}) }, class: cloud.Transient, says: "lost"},
		"exists":     {arrange: func(*fakegce.Server) {}, spec: func(s *cloud.InstanceSpec) { s.Name = "before" }, class: cloud.AlreadyExists, says: "already exists"},
		"project":    {spec: func(*cloud.InstanceSpec) {}, class: cloud.Invalid, says: "projects/other-project"},
	} {
		t.Run(name, func(t *testing.T) {
			server := fakegce.Start(t, fakegce.Options{})
			provider := newProvider(t, server)
			if name == "project" {
				provider = newProvider(t, server, func(o *gcp.Options) { o.Project = "other-project" })
			} else {
				_, err := provider.Create(t.Context(), wish("before"))
				require.NoError(t, err)
			}
			if test.arrange != nil {
				test.arrange(server)
			}
			spec := wish("wished")
			if test.spec != nil {
				test.spec(&spec)
			}
			op, err := provider.Create(t.Context(), spec)
			if err == nil {
				op, err = provider.Operation(t.Context(), op)
				require.NoError(t, err)
				require.True(t, op.Done)
				err = op.Err
			}
			require.Error(t, err)
			assert.Equal(t, test.class, cloud.ClassOf(err), "%v", err)
			assert.Contains(t, err.Error(), test.says)
		})
	}
}

func TestAFailedRequestIDStaysFailed(t *testing.T) {
	server := fakegce.Start(t, fakegce.Options{})
	provider := newProvider(t, server)
	server.StockOut(zone)
	_, err := provider.Create(t.Context(), wish("one"))
	require.NoError(t, err)
	server.Restock(zone)
	op, err := provider.Create(t.Context(), wish("one"))
	require.NoError(t, err)
	assert.Equal(t, cloud.Stockout, cloud.ClassOf(op.Err), "the same id gets the same answer")
	op, err = provider.Create(t.Context(), wish("one", func(s *cloud.InstanceSpec) { s.RequestID = requestID("another") }))
	require.NoError(t, err)
	op, err = provider.Operation(t.Context(), op)
	require.NoError(t, err)
	require.NoError(t, op.Err)
}

func TestListIsFilteredAndPaged(t *testing.T) {
	server := fakegce.Start(t, fakegce.Options{})
	provider := newProvider(t, server)
	for n := range 501 {
		_, err := provider.Create(t.Context(), wish(fmt.Sprintf("i-%04d", n), func(s *cloud.InstanceSpec) {
			s.Labels["cluster"] = fmt.Sprint(n % 2)
			s.Labels["all"] = "yes"
		}))
		require.NoError(t, err)
	}
	server.ForgetCalls()
	odd, err := provider.List(t.Context(), zone, map[string]string{"cluster": "1", "all": "yes"})
	require.NoError(t, err)
	assert.Len(t, odd, 250)
	assert.Equal(t, 1, server.Calls("compute.instances.list", zone))
	all, err := provider.List(t.Context(), zone, map[string]string{"all": "yes"})
	require.NoError(t, err)
	assert.Len(t, all, 501)
	assert.Equal(t, 3, server.Calls("compute.instances.list", zone), "the second list has two pages")
	none, err := provider.List(t.Context(), "us-central1-b", nil)
	require.NoError(t, err)
	assert.Empty(t, none)
}

func TestPreemptions(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	server := fakegce.Start(t, fakegce.Options{Clock: clock, Latency: fakegce.Latency{Notice: 30 * time.Second}})
	provider := newProvider(t, server)
	for _, name := range []string{"early", "late", "stays"} {
		_, err := provider.Create(t.Context(), wish(name))
		require.NoError(t, err)
	}
	require.NoError(t, server.Preempt("early"))
	clock.Step(time.Hour)
	require.NoError(t, server.Preempt("late"))

	found, err := provider.Get(t.Context(), zone, "late")
	require.NoError(t, err)
	assert.Equal(t, "STOPPING", found.State)
	assert.Equal(t, "Instance was preempted.", found.StatusMessage)
	_, err = provider.Get(t.Context(), zone, "early")
	assert.Equal(t, cloud.NotFound, cloud.ClassOf(err), "a spot instance is deleted, not stopped")

	all, err := provider.Preemptions(t.Context(), zone, clock.Now().Add(-2*time.Hour))
	require.NoError(t, err)
	assert.Equal(t, []cloud.Preemption{
		{Instance: "early", Time: clock.Now().Add(-time.Hour)}, {Instance: "late", Time: clock.Now()},
	}, all)
	recent, err := provider.Preemptions(t.Context(), zone, clock.Now())
	require.NoError(t, err)
	assert.Equal(t, []cloud.Preemption{{Instance: "late", Time: clock.Now()}}, recent)
}

// rateLimit answers the next request with 429.
func rateLimit(server *fakegce.Server, retryAfter time.Duration) {
	server.Inject(fakegce.Fault{
		Times: 1, Status: http.StatusTooManyRequests, Reason: "rateLimitExceeded", RetryAfter: retryAfter,
		Message: "Quota exceeded for quota metric 'Queries' and limit 'Queries per minute' of service 'compute.googleapis.com'.",
	})
}

// publish has an instance write a guest attribute.
func publish(t *testing.T, server *fakegce.Server, name, at, value string) {
	t.Helper()
	request := httptest.NewRequest(http.MethodPut, "/computeMetadata/v1/instance/guest-attributes/"+at, strings.NewReader(value))
	request.Header.Set("Metadata-Flavor", "Google")
	answer := httptest.NewRecorder()
	server.Metadata(name).ServeHTTP(answer, request)
	require.Equal(t, http.StatusOK, answer.Code, answer.Body)
}

func TestHostKeys(t *testing.T) {
	server := fakegce.Start(t, fakegce.Options{})
	provider := newProvider(t, server)
	_, err := provider.HostKeys(t.Context(), zone, "one")
	assert.Equal(t, cloud.NotFound, cloud.ClassOf(err), "%v", err)
	_, err = provider.Create(t.Context(), wish("one"))
	require.NoError(t, err)
	keys, err := provider.HostKeys(t.Context(), zone, "one")
	require.NoError(t, err)
	assert.Empty(t, keys, "it has not published any yet")
	publish(t, server, "one", "hostkeys/ssh-ed25519", "AAAAC3Nz")
	publish(t, server, "one", "other/thing", "x")
	keys, err = provider.HostKeys(t.Context(), zone, "one")
	require.NoError(t, err)
	assert.Equal(t, []string{"ssh-ed25519 AAAAC3Nz"}, keys)
}

func TestShapesAreAskedForOnce(t *testing.T) {
	server := fakegce.Start(t, fakegce.Options{})
	provider := newProvider(t, server)
	for range 3 {
		shape, err := provider.Shape(t.Context(), zone, "g2-standard-24")
		require.NoError(t, err)
		assert.Equal(t, cloud.Shape{MilliCPU: 24000, MemoryBytes: 96 << 30, GPUs: 2}, shape)
	}
	assert.Equal(t, 1, server.Calls("compute.machineTypes.get", zone))
	_, err := provider.Shape(t.Context(), zone, "n9-standard-4")
	assert.Equal(t, cloud.Invalid, cloud.ClassOf(err), "%v", err)
}

func BenchmarkListOf500(b *testing.B) {
	server := fakegce.Start(b, fakegce.Options{})
	provider, err := gcp.New(b.Context(), gcp.Options{
		Project: server.Project(), Credentials: server.CredentialsJSON(), Endpoint: server.URL(), Rate: 1e9, Burst: 1 << 20,
	})
	require.NoError(b, err)
	for n := range 500 {
		_, err := provider.Create(b.Context(), wish(fmt.Sprintf("i-%04d", n)))
		require.NoError(b, err)
	}
	for b.Loop() {
		listed, err := provider.List(b.Context(), zone, map[string]string{"training-dcnlab-com-vm": "t4"})
		require.NoError(b, err)
		require.Len(b, listed, 500)
	}
}
