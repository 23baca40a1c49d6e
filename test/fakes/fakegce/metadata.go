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
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	defer s.enter()()
	i := s.byName(name)
	if s.ended || i == nil || !i.ended.IsZero() {
		return metadataserver.Value{Fault: metadataserver.Reset}
	}
	answer := metadataserver.Value{Type: "application/text", Changed: i.changed}
	values := s.values(i)
	at = strings.Trim(at, "/")
	text, isText := values[at]
	if at != "" && !isText {
		at += "/"
	}
	lines, folder := below(values, at)
	var value any = folder
	switch {
	case at == metadataToken+"/" && len(i.resource.ServiceAccounts) > 0:
		value = s.grantToken()
	case isText && query.Get("alt") != "json":
		answer.Text = text
		return answer
	case isText:
		value = text
	case len(lines) == 0:
		answer.Missing = true
		return answer
	case query.Get("recursive") != "true":
		answer.Text = strings.Join(lines, "")
		return answer
	}
	content, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	answer.Text, answer.Type = string(content), "application/json"
	return answer
}

// values are all that the metadata server of an instance tells, by their paths; s.mu is held.
func (s *Server) values(i *instance) map[string]string {
	const project = "projects/123456789012"
	yes := map[bool]string{true: "TRUE", false: "FALSE"}
	r := i.resource
	all := map[string]string{
		"project/project-id": s.opts.Project, "project/numeric-project-id": path.Base(project),
		"instance/id": i.id(), "instance/name": r.Name, "instance/preempted": yes[i.preempted], "instance/maintenance-event": "NONE",
		"instance/zone": project + "/zones/" + i.zone, "instance/machine-type": project + "/machineTypes/" + path.Base(r.MachineType),
		"instance/hostname":                       fmt.Sprintf("%s.%s.c.%s.internal", r.Name, i.zone, s.opts.Project),
		"instance/scheduling/preemptible":         yes[i.spot()],
		"instance/scheduling/on-host-maintenance": r.Scheduling.OnHostMaintenance,
		"instance/scheduling/automatic-restart":   yes[ptr.Deref(r.Scheduling.AutomaticRestart, false)],
	}
	for name, value := range metadataMap(r.Metadata) {
		all["instance/attributes/"+name] = value
	}
	for at, value := range i.guest {
		all["instance/guest-attributes/"+at] = value
	}
	for _, account := range r.ServiceAccounts {
		for _, alias := range []string{"default", account.Email} {
			folder := "instance/service-accounts/" + alias
			all[folder+"/email"], all[folder+"/scopes"], all[folder+"/aliases"] = account.Email, strings.Join(account.Scopes, "\n")+"\n", "default\n"
		}
	}
	for n, nic := range r.NetworkInterfaces {
		folder := fmt.Sprintf("instance/network-interfaces/%d", n)
		all[folder+"/ip"] = nic.NetworkIP
		for m, access := range nic.AccessConfigs {
			all[fmt.Sprintf("%s/access-configs/%d/external-ip", folder, m)] = access.NatIP
		}
	}
	return all
}

// below has what is in a folder: the lines of its listing, where folders end with a slash, and all of it as JSON has it.
func below(values map[string]string, folder string) (lines []string, tree map[string]any) {
	tree = map[string]any{}
	for at, value := range values {
		rest, ok := strings.CutPrefix(at, folder)
		if !ok {
			continue
		}
		line, _, isFolder := strings.Cut(rest, "/")
		if isFolder {
			line += "/"
		}
		lines = append(lines, line+"\n")
		names := strings.Split(strings.TrimPrefix(camel(at), camel(folder)), "/")
		_ = unstructured.SetNestedField(tree, value, names...) // no value has others below it
	}
	slices.Sort(lines)
	return slices.Compact(lines), tree
}

var afterDash = regexp.MustCompile(`-[a-z]`)

// camel turns the names in a path into the form that they have in JSON; names that users chose stay.
func camel(at string) string {
	own, chosen := at, ""
	if found := strings.Index(at, "attributes/"); found >= 0 {
		own, chosen = at[:found+len("attributes/")], at[found+len("attributes/"):]
	}
	return afterDash.ReplaceAllStringFunc(own, func(found string) string { return strings.ToUpper(found[1:]) }) + chosen
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
	switch {
	case r.Method == http.MethodDelete:
		delete(i.guest, attribute)
	case !strings.EqualFold(metadataMap(i.resource.Metadata)["enable-guest-attributes"], "true"):
		http.Error(w, "guest attributes are not enabled for instance "+name, http.StatusForbidden)
		return
	default:
		i.guest[attribute] = string(body)
	}
	i.notify()
}
