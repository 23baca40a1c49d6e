package rbac_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// auditPolicy has the API server log what some users ask for, without the contents.
func auditPolicy(users []string) []byte {
	return fmt.Appendf(nil, `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["%s"]
- level: None
`, strings.Join(users, `", "`))
}

// auditEvent is the part of an audit.k8s.io/v1 Event that is read here.
type auditEvent struct {
	Stage      string `json:"stage"`
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	User       struct {
		Name string `json:"username"`
	} `json:"user"`
	Object *struct {
		Group       string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	Response struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"responseStatus"`
	Annotations map[string]string `json:"annotations"`
}

// access of the request.
func (e *auditEvent) access() access {
	if e.Object == nil {
		path, _, _ := strings.Cut(e.RequestURI, "?")
		return access{resource: path, verb: e.Verb}
	}
	resource := e.Object.Resource
	if e.Object.Subresource != "" {
		resource += "/" + e.Object.Subresource
	}
	return access{group: e.Object.Group, resource: resource, verb: e.Verb, name: e.Object.Name}
}

// anyName is the access for whichever object.
func (e *auditEvent) anyName() access {
	a := e.access()
	a.name = ""
	return a
}

// allowedBy finds the binding in the reason that the authorizer gives.
var allowedBy = regexp.MustCompile(`^RBAC: allowed by (?:ClusterRoleBinding|RoleBinding) "([^"]+)"`)

// deliberate are refusals that scenarios bring about, or that cannot be avoided, and that no role would change: who may
// create pods may not do so against a quota. They are known by the API server's message.
var deliberate = []string{
	"exceeded quota",
	"because it is being terminated",
}

// requestsOf counts the requests of a user in an audit log by what allowed them; denied are those that were refused for lack of a
// permission, each once.
func requestsOf(t *testing.T, log, user string) (requests map[request]int, denied []string) {
	t.Helper()
	file, err := os.Open(log)
	require.NoError(t, err)
	defer file.Close()
	requests = map[request]int{}
	seen := map[access]bool{}
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 && err == nil { // a line without an end is still being written
			var event auditEvent
			require.NoError(t, json.Unmarshal(line, &event), "%s", line)
			if event.User.Name != user {
				continue
			}
			if asked := event.anyName(); event.refused() && !seen[asked] {
				seen[asked] = true
				denied = append(denied, fmt.Sprintf("%s: %s", asked, event.Response.Message))
			}
			// A watch is logged when it begins and when it ends, all others when they end.
			began := event.Verb == "watch" && event.Stage == "ResponseStarted"
			ended := event.Verb != "watch" && event.Stage == "ResponseComplete"
			binding := allowedBy.FindStringSubmatch(event.Annotations["authorization.k8s.io/reason"])
			if binding != nil && (began || ended) {
				namespace := ""
				if event.Object != nil {
					namespace = event.Object.Namespace
				}
				requests[request{event.access(), binding[1], namespace}]++
			}
		}
		if err != nil {
			return requests, denied
		}
	}
}

// refused says whether the request was refused for lack of a permission.
func (e *auditEvent) refused() bool {
	if e.Annotations["authorization.k8s.io/decision"] != "forbid" &&
		e.Response.Code != http.StatusForbidden && e.Response.Code != http.StatusUnauthorized {
		return false
	}
	for _, message := range deliberate {
		if strings.Contains(e.Response.Message, message) {
			return false
		}
	}
	return true
}
