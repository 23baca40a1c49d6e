package fakegce_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/oauth2/google"
	"google.golang.org/api/compute/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dcnlab/spot-training-operator/test/fakes/fakegce"
)

const zone = "us-central1-a"

// client authenticates with the server's key, and does nothing else on its own.
func client(t *testing.T, server *fakegce.Server) *http.Client {
	t.Helper()
	config, err := google.JWTConfigFromJSON(server.CredentialsJSON(), compute.ComputeScope)
	require.NoError(t, err)
	return config.Client(t.Context())
}

func send(t *testing.T, client *http.Client, method, url, body string) (int, map[string]any) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	answer, err := client.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	var parsed map[string]any
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&parsed))
	return answer.StatusCode, parsed
}

const goodBody = `{"name": %q, "machineType": "zones/us-central1-a/machineTypes/n1-standard-1",
	"disks": [{"boot": true, "initializeParams": {"sourceImage": "projects/p/global/images/i", "diskSizeGb": "20"}}],
	"networkInterfaces": [{"network": "global/networks/default"}], "labels": {"vm": %q},
	"metadata": {"items": [{"key": "enable-guest-attributes", "value": "TRUE"}, {"key": "greeting", "value": "hello"}]},
	"scheduling": {"provisioningModel": "SPOT", "instanceTerminationAction": "DELETE"}}`

func insert(t *testing.T, server *fakegce.Server, name, label string) {
	t.Helper()
	url := server.URL() + "/compute/v1/projects/test-project/zones/" + zone + "/instances"
	status, answer := send(t, client(t, server), "POST", url, fmt.Sprintf(goodBody, name, label))
	require.Equal(t, http.StatusOK, status, "%v", answer)
}

func TestRequestsAreHeldAgainstTheDiscoveryDocument(t *testing.T) {
	server := fakegce.Start(t, fakegce.Options{AllowViolations: true})
	google := client(t, server)
	for name, test := range map[string]struct{ method, path, body, violation string }{
		"no such path":         {"GET", "projects/test-project/zones/z/things", "", "no such method"},
		"wrong verb":           {"POST", "projects/test-project/zones/us-central1-a/instances/one", "{}", "no such method"},
		"unknown parameter":    {"GET", "projects/test-project/zones/us-central1-a/instances?fliter=x", "", "fliter"},
		"wrong parameter type": {"GET", "projects/test-project/zones/us-central1-a/instances?maxResults=many", "", "no integer"},
		"bad path parameter":   {"GET", "projects/test-project/zones/us-central1-a/instances/Upper", "", "does not match"},
		"unknown field":        {"POST", "projects/test-project/zones/us-central1-a/instances", `{"name": "one", "scheduling": {"preemptable": true}}`, "Instance.scheduling.preemptable: there is no such field"},
		"wrong type":           {"POST", "projects/test-project/zones/us-central1-a/instances", `{"name": "one", "disks": [{"boot": "yes"}]}`, "Instance.disks[0].boot"},
		"number for a string":  {"POST", "projects/test-project/zones/us-central1-a/instances", `{"name": "one", "disks": [{"diskSizeGb": 20}]}`, "Instance.disks[0].diskSizeGb: is no string"},
		"wrong enum":           {"POST", "projects/test-project/zones/us-central1-a/instances", `{"name": "one", "scheduling": {"provisioningModel": "CHEAP"}}`, "CHEAP"},
		"map of numbers":       {"POST", "projects/test-project/zones/us-central1-a/instances", `{"name": "one", "labels": {"a": 1}}`, "Instance.labels.a: is no string"},
		"for answers only":     {"POST", "projects/test-project/zones/us-central1-a/instances", `{"name": "one", "status": "RUNNING"}`, "answers only"},
		"name is missing":      {"POST", "projects/test-project/zones/us-central1-a/instances", `{"labels": {}}`, "Instance.name: is required"},
		"body of a GET":        {"GET", "projects/test-project/zones/us-central1-a/instances", `{}`, "takes no body"},
		"no JSON":              {"POST", "projects/test-project/zones/us-central1-a/instances", `name: one`, "no JSON"},
		"unknown answer field": {"GET", "projects/test-project/zones/us-central1-a/instances?fields=items(nom)", "", "items/nom"},
		"unknown filter field": {"GET", "projects/test-project/zones/us-central1-a/instances?filter=label.a%20%3D%20b", "", "there is no field label.a"},
		"method not served":    {"GET", "projects/test-project/zones/us-central1-a/disks", "", "does not serve"},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(server.Violations())
			status, _ := send(t, google, test.method, server.URL()+"/compute/v1/"+test.path, test.body)
			assert.GreaterOrEqual(t, status, 400)
			violations := server.Violations()[before:]
			require.NotEmpty(t, violations)
			assert.Contains(t, strings.Join(violations, "\n"), test.violation)
		})
	}
	assert.Empty(t, server.History())
}

func TestAnswersFitTheDiscoveryDocumentToo(t *testing.T) {
	server := fakegce.Start(t, fakegce.Options{})
	insert(t, server, "one", "x")
	url := server.URL() + "/compute/v1/projects/test-project/zones/" + zone
	_, list := send(t, client(t, server), "GET", url+"/instances?fields=items(name,networkInterfaces/networkIP),nextPageToken", "")
	assert.Equal(t, map[string]any{"items": []any{map[string]any{
		"name": "one", "networkInterfaces": []any{map[string]any{"networkIP": "10.128.0.1"}},
	}}}, list)
}

func TestFilters(t *testing.T) {
	server := fakegce.Start(t, fakegce.Options{})
	for _, name := range []string{"a1", "a2", "b1"} {
		insert(t, server, name, name[:1])
	}
	google := client(t, server)
	for filter, want := range map[string]int{
		``:                                    3,
		`labels.vm = a`:                       2,
		`labels.vm = "a"`:                     2,
		`(labels.vm = "a") AND (name = a2)`:   1,
		`(labels.vm = "a") (name = a2)`:       1,
		`(name = a1) OR (name = b1)`:          2,
		`name != a1`:                          2,
		`labels.vm:*`:                         3,
		`labels.other:*`:                      0,
		`name eq a.*`:                         2,
		`name ne "a.*"`:                       1,
		`scheduling.provisioningModel = SPOT`: 3,
		`status = RUNNING`:                    3,
	} {
		request := server.URL() + "/compute/v1/projects/test-project/zones/" + zone + "/instances?filter=" +
			strings.NewReplacer(" ", "%20", `"`, "%22", "=", "%3D").Replace(filter)
		_, list := send(t, google, "GET", request, "")
		items, _ := list["items"].([]any)
		assert.Len(t, items, want, "filter %s", filter)
	}
}

func TestAccess(t *testing.T) {
	server := fakegce.Start(t, fakegce.Options{})
	url := server.URL() + "/compute/v1/projects/test-project/zones/" + zone + "/instances"
	status, answer := send(t, http.DefaultClient, "GET", url, "")
	assert.Equal(t, http.StatusUnauthorized, status, "%v", answer)
	google := client(t, server)
	status, _ = send(t, google, "GET", url, "")
	assert.Equal(t, http.StatusOK, status)
	server.RevokeTokens()
	status, _ = send(t, google, "GET", url, "")
	assert.Equal(t, http.StatusUnauthorized, status)
}

func TestOneStepOfTheClockOrMany(t *testing.T) {
	history := func(steps int) []string {
		clock := clocktesting.NewFakeClock(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC))
		var mu sync.Mutex
		var seen []string
		note := func(what string) func(fakegce.Instance) {
			return func(i fakegce.Instance) {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, fmt.Sprint(what, " ", i.Name, " ", i.ID, " ", i.State, " ", i.Running.Sub(i.Created), " ", i.Ended.Sub(i.Created)))
			}
		}
		server := fakegce.Start(t, fakegce.Options{
			Clock: clock, Seed: 7, Latency: fakegce.RealisticLatency(), PreemptionsPerHour: 1,
			Hooks: fakegce.Hooks{OnRunning: note("runs"), OnPreempted: note("preempted"), OnGone: note("gone")},
		})
		for n := range 5 {
			insert(t, server, fmt.Sprintf("i%d", n), "x")
		}
		for range steps {
			clock.Step(12 * time.Hour / time.Duration(steps))
			server.Settle()
		}
		mu.Lock()
		defer mu.Unlock()
		return seen
	}
	once := history(1)
	assert.Equal(t, once, history(720), "the same seed gives the same day")
	assert.Len(t, once, 15, "all were preempted within 12 hours: %v", once)
	assert.Contains(t, once[0], "runs")
	assert.Contains(t, once[len(once)-1], "gone")
}

func TestStockAndQuotaCount(t *testing.T) {
	server := fakegce.Start(t, fakegce.Options{})
	server.SetStock(fakegce.Stock{Zone: zone, Model: "SPOT", Left: 2})
	for n := range 3 {
		insert(t, server, fmt.Sprintf("s%d", n), "x")
	}
	assert.Len(t, server.Instances(), 2)
	server.Restock(zone)
	server.SetQuota("us-central1", "INSTANCES", 3)
	for n := range 3 {
		insert(t, server, fmt.Sprintf("q%d", n), "x")
	}
	assert.Len(t, server.Instances(), 3)
}

func TestMetadataServer(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC))
	server := fakegce.Start(t, fakegce.Options{Clock: clock, Latency: fakegce.Latency{Notice: 30 * time.Second}})
	insert(t, server, "one", "x")
	metadata := httptest.NewServer(server.Metadata("one"))
	t.Cleanup(metadata.Close)
	read := func(ctx context.Context, path string) (int, string, string, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, metadata.URL+"/computeMetadata/v1/instance/"+path, nil)
		require.NoError(t, err)
		request.Header.Set("Metadata-Flavor", "Google")
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return 0, "", "", err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(bufio.NewReader(answer.Body))
		return answer.StatusCode, string(body), answer.Header.Get("ETag"), err
	}
	get := func(path string) string {
		status, body, _, err := read(t.Context(), path)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status, path)
		return body
	}

	assert.Equal(t, "one", get("name"))
	assert.Equal(t, "projects/123456789012/zones/us-central1-a", get("zone"))
	assert.Equal(t, "hello", get("attributes/greeting"))
	assert.Equal(t, "enable-guest-attributes\ngreeting\n", get("attributes/"))
	assert.Contains(t, get("?recursive=true"), `"maintenanceEvent":"NONE"`)
	assert.Contains(t, get("?recursive=true"), `"enable-guest-attributes":"TRUE"`)
	status, _, _, err := read(t.Context(), "attributes/none")
	require.NoError(t, err)
	assert.Equal(t, http.StatusNotFound, status)
	plain, err := http.Get(metadata.URL + "/computeMetadata/v1/instance/name")
	require.NoError(t, err)
	_ = plain.Body.Close()
	assert.Equal(t, http.StatusForbidden, plain.StatusCode, "the header is required")

	put, err := http.NewRequestWithContext(t.Context(), http.MethodPut,
		metadata.URL+"/computeMetadata/v1/instance/guest-attributes/hostkeys/ssh-ed25519", strings.NewReader("AAAA"))
	require.NoError(t, err)
	put.Header.Set("Metadata-Flavor", "Google")
	answer, err := http.DefaultClient.Do(put)
	require.NoError(t, err)
	_ = answer.Body.Close()
	assert.Equal(t, http.StatusOK, answer.StatusCode)
	assert.Equal(t, "AAAA", get("guest-attributes/hostkeys/ssh-ed25519"))

	_, value, etag, err := read(t.Context(), "preempted")
	require.NoError(t, err)
	assert.Equal(t, "FALSE", value)
	notice := make(chan string, 1)
	go func() {
		_, value, _, err := read(context.Background(), "preempted?wait_for_change=true&last_etag="+etag)
		if err != nil {
			value = err.Error()
		}
		notice <- value
	}()
	require.NoError(t, server.Preempt("one"))
	assert.Equal(t, "TRUE", <-notice)
	assert.Equal(t, "TRUE", get("preempted?wait_for_change=true&last_etag="+etag), "a change that was missed is told at once")
	clock.Step(31 * time.Second)
	server.Settle()
	_, _, _, err = read(t.Context(), "preempted")
	require.Error(t, err, "the instance is off")
}

func TestAWaitThatTimesOutTellsTheValue(t *testing.T) {
	server := fakegce.Start(t, fakegce.Options{})
	insert(t, server, "one", "x")
	metadata := httptest.NewServer(server.Metadata("one"))
	t.Cleanup(metadata.Close)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		metadata.URL+"/computeMetadata/v1/instance/preempted?wait_for_change=true&timeout_sec=1", nil)
	require.NoError(t, err)
	request.Header.Set("Metadata-Flavor", "Google")
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	assert.Equal(t, "FALSE", string(body))
}
