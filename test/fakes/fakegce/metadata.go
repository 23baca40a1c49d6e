package fakegce

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/dcnlab/spot-training-operator/test/fakes/metadataserver"
)

const (
	metadataRoot = "/computeMetadata/v1/"
	// metadataToken is where programs on an instance find an access token of its service account.
	metadataToken = "instance/service-accounts/default/token"
)

// Metadata is the metadata server of an instance, as programs on it see it at 169.254.169.254. When the instance is gone
// its connections are cut.
func (s *Server) Metadata(name string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+metadataRoot+"{key...}", func(w http.ResponseWriter, r *http.Request) {
		read := func() metadataserver.Value { return s.metadata(name, r.PathValue("key"), r.URL.Query()) }
		metadataserver.Answer(w, r, s.clock, read, func(int) {})
	})
	write := func(w http.ResponseWriter, r *http.Request) { s.writeMetadata(w, r, name) }
	mux.HandleFunc("PUT "+metadataRoot+"instance/guest-attributes/{namespace}/{key}", write)
	mux.HandleFunc("DELETE "+metadataRoot+"instance/guest-attributes/{namespace}/{key}", write)
	guarded := metadataserver.Guard(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Metadata-Flavor", "Google")
		w.Header().Set("Server", "Metadata Server for VM")
		guarded.ServeHTTP(w, r)
	})
}

// metadata reads one value, or a folder.
func (s *Server) metadata(name, at string, query url.Values) metadataserver.Value {
	var token any
	if at == metadataToken {
		token = s.grantToken()
	}
	defer s.enter()()
	i := s.byName(name)
	if s.ended || i == nil || !i.ended.IsZero() {
		return metadataserver.Value{Fault: metadataserver.Reset}
	}
	answer := metadataserver.Value{Type: "application/text", Changed: i.changed}
	var value any = s.tree(i)
	for part := range strings.SplitSeq(strings.Trim(at, "/"), "/") {
		folder, _ := value.(map[string]any)
		if part != "" {
			value = folder[part]
		}
	}
	text, isText := value.(string)
	folder, isFolder := value.(map[string]any)
	switch {
	case token != nil && len(i.resource.ServiceAccounts) > 0:
		value = token
	case value == nil:
		answer.Missing = true
		return answer
	case isText && query.Get("alt") != "json":
		answer.Text = text
		return answer
	case isFolder && query.Get("recursive") != "true":
		answer.Text = listing(folder)
		return answer
	default:
		value = camel(value, path.Base(at))
	}
	content, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	answer.Text, answer.Type = string(content), "application/json"
	return answer
}

// tree of all that the metadata server of an instance tells; s.mu is held.
func (s *Server) tree(i *instance) map[string]any {
	yes := map[bool]string{true: "TRUE", false: "FALSE"}
	attributes, guest, accounts := map[string]any{}, map[string]any{}, map[string]any{}
	for name, value := range metadataMap(i.resource.Metadata) {
		attributes[name] = value
	}
	for at, value := range i.guest {
		namespace := path.Dir(at)
		if guest[namespace] == nil {
			guest[namespace] = map[string]any{}
		}
		guest[namespace].(map[string]any)[path.Base(at)] = value
	}
	for _, account := range i.resource.ServiceAccounts {
		entry := map[string]any{"email": account.Email, "scopes": strings.Join(account.Scopes, "\n") + "\n", "aliases": "default\n"}
		accounts["default"], accounts[account.Email] = entry, entry
	}
	network := map[string]any{}
	for n, nic := range i.resource.NetworkInterfaces {
		entry := map[string]any{"ip": nic.NetworkIP, "access-configs": map[string]any{}}
		for m, access := range nic.AccessConfigs {
			entry["access-configs"].(map[string]any)[strconv.Itoa(m)] = map[string]any{"external-ip": access.NatIP}
		}
		network[strconv.Itoa(n)] = entry
	}
	machine := path.Base(i.resource.MachineType)
	return map[string]any{
		"project": map[string]any{"project-id": s.opts.Project, "numeric-project-id": "123456789012"},
		"instance": map[string]any{
			"id": i.id(), "name": i.resource.Name, "preempted": yes[i.preempted], "maintenance-event": "NONE",
			"zone":         "projects/123456789012/zones/" + i.zone,
			"machine-type": "projects/123456789012/machineTypes/" + machine,
			"hostname":     fmt.Sprintf("%s.%s.c.%s.internal", i.resource.Name, i.zone, s.opts.Project),
			"attributes":   attributes, "guest-attributes": guest, "service-accounts": accounts, "network-interfaces": network,
			"scheduling": map[string]any{
				"preemptible": yes[i.spot()], "on-host-maintenance": i.resource.Scheduling.OnHostMaintenance,
				"automatic-restart": yes[ptr.Deref(i.resource.Scheduling.AutomaticRestart, false)],
			},
		},
	}
}

// listing of a folder: one name a line, folders with a slash.
func listing(folder map[string]any) string {
	names := make([]string, 0, len(folder))
	for name, value := range folder {
		if _, ok := value.(map[string]any); ok {
			name += "/"
		}
		names = append(names, name+"\n")
	}
	slices.Sort(names)
	return strings.Join(names, "")
}

// camel turns the names of a tree into the form that they have in JSON; names that users chose stay.
func camel(value any, under string) any {
	folder, ok := value.(map[string]any)
	if !ok {
		return value
	}
	turned := map[string]any{}
	for name, entry := range folder {
		if under != "attributes" && under != "guest-attributes" {
			turned[camelName(name)] = camel(entry, name)
		} else {
			turned[name] = camel(entry, under)
		}
	}
	return turned
}

var afterDash = regexp.MustCompile(`-[a-z]`)

func camelName(name string) string {
	return afterDash.ReplaceAllStringFunc(name, func(found string) string { return strings.ToUpper(found[1:]) })
}

// writeMetadata takes guest attributes.
func (s *Server) writeMetadata(w http.ResponseWriter, r *http.Request, name string) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 256<<10))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer s.enter()()
	i := s.byName(name)
	if i == nil {
		panic(http.ErrAbortHandler)
	}
	attribute := r.PathValue("namespace") + "/" + r.PathValue("key")
	if r.Method == http.MethodDelete {
		delete(i.guest, attribute)
		i.notify()
	} else if err := i.setGuest(attribute, string(body)); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
	}
}
