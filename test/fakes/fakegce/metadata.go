package fakegce

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"path"
	"sort"
	"strconv"
	"strings"
	"time"
)

const metadataRoot = "/computeMetadata/v1/"

// Metadata is the metadata server of an instance, as programs on it see it at 169.254.169.254. When the instance is gone
// its connections are cut.
func (s *Server) Metadata(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Metadata-Flavor", "Google")
		w.Header().Set("Server", "Metadata Server for VM")
		if r.Header.Get("Metadata-Flavor") != "Google" || r.Header.Get("X-Forwarded-For") != "" {
			http.Error(w, "Missing required header: Metadata-Flavor", http.StatusForbidden)
			return
		}
		at, ok := strings.CutPrefix(r.URL.Path, metadataRoot)
		if !ok {
			http.NotFound(w, r)
			return
		}
		switch r.Method {
		case http.MethodGet:
			s.readMetadata(w, r, name, at)
		case http.MethodPut, http.MethodDelete:
			s.writeMetadata(w, r, name, at)
		default:
			http.Error(w, "Method not allowed", http.StatusMethodNotAllowed)
		}
	})
}

func (s *Server) readMetadata(w http.ResponseWriter, r *http.Request, name, at string) {
	query := r.URL.Query()
	var timeout <-chan time.Time
	waiting := query.Get("wait_for_change") == "true"
	last := query.Get("last_etag")
	if seconds, err := strconv.Atoi(query.Get("timeout_sec")); waiting && err == nil && seconds > 0 {
		timer := s.clock.NewTimer(time.Duration(seconds) * time.Second)
		defer timer.Stop()
		timeout = timer.C()
	}
	for {
		text, kind, found, changed := s.metadata(name, at, query.Get("recursive") == "true", query.Get("alt"))
		if changed == nil {
			panic(http.ErrAbortHandler)
		}
		etag := etagOf(text)
		if !waiting || last != "" && last != etag {
			answerMetadata(w, text, kind, etag, found)
			return
		}
		last = etag
		select {
		case <-changed:
		case <-timeout:
			waiting = false
		case <-r.Context().Done():
			return
		case <-s.closed:
			panic(http.ErrAbortHandler)
		}
	}
}

func answerMetadata(w http.ResponseWriter, text, kind, etag string, found bool) {
	w.Header().Set("ETag", etag)
	if !found {
		http.Error(w, "Not Found", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", kind)
	_, _ = io.WriteString(w, text)
}

func etagOf(text string) string {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(text))
	return fmt.Sprintf("%016x", hash.Sum64())
}

// metadata reads one value, or a folder; changed is nil when the instance is gone.
func (s *Server) metadata(name, at string, recursive bool, alt string) (text, kind string, found bool, changed <-chan struct{}) {
	if at == "instance/service-accounts/default/token" {
		return s.instanceToken(name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	i := s.byName(name)
	if i == nil || i.ended != (time.Time{}) {
		return "", "", false, nil
	}
	var value any = s.tree(i)
	for _, part := range strings.Split(strings.Trim(at, "/"), "/") {
		if part == "" {
			continue
		}
		folder, ok := value.(map[string]any)
		if !ok || folder[part] == nil {
			return "", "", false, i.changed
		}
		value = folder[part]
	}
	switch v := value.(type) {
	case string:
		if alt != "json" {
			return v, "application/text", true, i.changed
		}
	case map[string]any:
		if !recursive {
			return listing(v), "application/text", true, i.changed
		}
	}
	content, err := json.Marshal(camel(value, path.Base(at)))
	if err != nil {
		panic(err)
	}
	return string(content), "application/json", true, i.changed
}

// instanceToken is an access token of the instance's service account: workload identity for programs on it.
func (s *Server) instanceToken(name string) (text, kind string, found bool, changed <-chan struct{}) {
	s.mu.Lock()
	i := s.byName(name)
	if i == nil {
		s.mu.Unlock()
		return "", "", false, nil
	}
	changed, found = i.changed, len(i.resource.ServiceAccounts) > 0
	s.mu.Unlock()
	if !found {
		return "", "", false, changed
	}
	return fmt.Sprintf(`{"access_token":%q,"expires_in":%d,"token_type":"Bearer"}`, s.grantToken(), int(tokenLifetime.Seconds())),
		"application/json", true, changed
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
				"automatic-restart": yes[i.resource.Scheduling.AutomaticRestart != nil && *i.resource.Scheduling.AutomaticRestart],
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
	sort.Strings(names)
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

func camelName(name string) string {
	parts := strings.Split(name, "-")
	for n, part := range parts[1:] {
		if part != "" {
			parts[n+1] = strings.ToUpper(part[:1]) + part[1:]
		}
	}
	return strings.Join(parts, "")
}

// writeMetadata takes guest attributes.
func (s *Server) writeMetadata(w http.ResponseWriter, r *http.Request, name, at string) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 256<<10))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	attribute, ok := strings.CutPrefix(at, "instance/guest-attributes/")
	if !ok || strings.Count(attribute, "/") != 1 {
		http.Error(w, "Forbidden", http.StatusForbidden)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	i := s.byName(name)
	if i == nil {
		panic(http.ErrAbortHandler)
	}
	if r.Method == http.MethodDelete {
		delete(i.guest, attribute)
		i.notify()
		return
	}
	if err := i.setGuest(attribute, string(body)); err != nil {
		http.Error(w, err.Error(), http.StatusForbidden)
	}
}
