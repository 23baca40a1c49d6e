package fakegce

import (
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"google.golang.org/api/compute/v1"
)

// sent is a resource of the API.
type sent[T any] struct {
	resource *T
	// form is the resource as it is sent; nil after a change.
	form map[string]any
}

// set changes the resource; s.mu is held.
func (r *sent[T]) set(change func(*T)) {
	change(r.resource)
	r.form = nil
}

// json is the resource as it is sent: never changed, and made once, since a client that watches hundreds of instances reads
// each of them over and over. s.mu is held.
func (r *sent[T]) json() map[string]any {
	if r.form == nil {
		r.form = generic(r.resource).(map[string]any)
	}
	return r.form
}

// instance is an instance with what only the provider knows of it.
type instance struct {
	zone string
	sent[compute.Instance]
	number uint64
	// granted says that there was stock and quota for it.
	granted, preempted, gone bool
	// leaving says that it stops and is deleted then.
	leaving                 bool
	created, running, ended time.Time
	// guest are the guest attributes, by namespace/key.
	guest map[string]string
	// changed is closed when something that the metadata server tells has changed.
	changed chan struct{}
}

func (i *instance) id() string { return strconv.FormatUint(i.number, 10) }

func (i *instance) spot() bool {
	scheduling := i.resource.Scheduling
	return scheduling != nil && (scheduling.ProvisioningModel == "SPOT" || scheduling.Preemptible)
}

func (i *instance) status(status string) {
	i.set(func(r *compute.Instance) { r.Status = status })
}

// notify tells those who wait for a change of the metadata; s.mu is held.
func (i *instance) notify() {
	close(i.changed)
	i.changed = make(chan struct{})
}

func (s *Server) byName(name string) *instance {
	for _, instance := range s.instances {
		if instance.resource.Name == name {
			return instance
		}
	}
	return nil
}

// nameOf is the name of the instance that a request names by its name or its ID.
func (s *Server) nameOf(zone, instance string) string {
	defer s.enter()()
	for at, one := range s.instances {
		if at.zone == zone && one.id() == instance {
			return at.name
		}
	}
	return instance
}

// notFound is for what a request names of a collection.
func (s *Server) notFound(c *call, collection string) *refusal {
	return refuse(http.StatusNotFound, "notFound", "The resource 'projects/%s/zones/%s/%s/%s' was not found",
		s.opts.Project, c.zone, collection, c.name)
}

func (s *Server) getInstance(c *call) (any, *refusal) {
	instance := s.instances[key{c.zone, c.name}]
	if instance == nil {
		return nil, s.notFound(c, "instances")
	}
	return instance.json(), nil
}

func (s *Server) listInstances(c *call) (any, *refusal) {
	return listOf(s, c, "Instance", s.instances)
}

// listOf is one page of the resources of a kind, by name.
func listOf[R interface{ json() map[string]any }](s *Server, c *call, title string, all map[key]R) (any, *refusal) {
	wanted := c.query.Get("filter")
	filter, err := s.doc.parseFilter(s.doc.Schemas[title], wanted)
	if err != nil {
		s.violations = append(s.violations, c.method.Id+": "+err.Error())
		return nil, refuse(http.StatusBadRequest, "invalid", "Invalid value for field 'filter': '%s'. Invalid list filter expression: %v", wanted, err)
	}
	var names []string
	for at, resource := range all {
		if at.zone == c.zone && filter.keeps(resource.json()) {
			names = append(names, at.name)
		}
	}
	slices.Sort(names)
	names, next, no := page(c, names)
	if no != nil {
		return nil, no
	}
	kind := strings.ToLower(title)
	list := map[string]any{
		"kind": "compute#" + kind + "List", "id": "projects/" + s.opts.Project + "/zones/" + c.zone + "/" + kind + "s",
		"selfLink": s.link("zones", c.zone, kind+"s"),
	}
	var items []any
	for _, name := range names {
		items = append(items, all[key{c.zone, name}].json())
		list["items"] = items
	}
	if next != "" {
		list["nextPageToken"] = next
	}
	return list, nil
}

// page cuts one page out of sorted names. The token of the next page is the last name of this one, so that pages stay
// right when instances come and go between them.
func page(c *call, names []string) (on []string, next string, no *refusal) {
	size := 500
	if text := c.query.Get("maxResults"); text != "" {
		size, _ = strconv.Atoi(text)
	}
	if size < 1 || size > 500 {
		return nil, "", refuse(http.StatusBadRequest, "invalid",
			"Invalid value for field 'maxResults': '%d'. Values must be within the range: [1, 500]", size)
	}
	if token := c.query.Get("pageToken"); token != "" {
		last, ok := strings.CutPrefix(token, "after-")
		if !ok {
			return nil, "", refuse(http.StatusBadRequest, "invalid", "Invalid value for field 'pageToken': '%s'.", token)
		}
		names = names[sort.Search(len(names), func(i int) bool { return names[i] > last }):]
	}
	if len(names) > size {
		return names[:size], "after-" + names[size-1], nil
	}
	return names, "", nil
}

func (s *Server) deleteInstance(c *call) (any, *refusal) {
	return s.once(c, "", func() (*operation, *refusal) {
		instance := s.instances[key{c.zone, c.name}]
		if instance == nil {
			return nil, s.notFound(c, "instances")
		}
		op := s.newOperation(instance, "delete", s.email())
		now := s.clock.Now()
		s.after(now, s.vary(s.opts.Latency.Accept), op.start)
		delay := s.vary(s.opts.Latency.Stop)
		if instance.resource.Status == "TERMINATED" || !instance.granted {
			delay = s.vary(s.opts.Latency.Accept)
		}
		instance.leaving = true
		if instance.resource.Status != "TERMINATED" {
			instance.status("STOPPING")
		}
		instance.notify()
		s.after(now, delay, func(now time.Time) {
			s.remove(instance, now)
			op.finish(now)
		})
		return op, nil
	})
}

// remove ends an instance; s.mu is held.
func (s *Server) remove(i *instance, now time.Time) {
	if i.gone {
		return
	}
	s.halt(i, now)
	i.gone = true
	if i.ended.IsZero() {
		i.ended = now
	}
	delete(s.instances, key{i.zone, i.resource.Name})
	i.notify()
}

// halt is the moment in which the programs of an instance end; s.mu is held.
func (s *Server) halt(i *instance, now time.Time) {
	if i.resource.Status != "TERMINATED" && !i.running.IsZero() && i.ended.IsZero() {
		i.ended = now
		i.status("TERMINATED")
		s.tell(s.opts.Hooks.OnGone, i)
	}
	i.status("TERMINATED")
}

// Preempt takes an instance back: it gets the notice, and is off when the time of the notice is over. An instance that
// does not run, or is no spot instance, is an error.
func (s *Server) Preempt(name string) error {
	defer s.enter()()
	instance := s.byName(name)
	if instance == nil || instance.resource.Status != "RUNNING" || !instance.spot() {
		return fmt.Errorf("instance %s does not run, or is no spot instance", name)
	}
	s.preempt(instance, s.clock.Now())
	s.advance()
	return nil
}

// preempt gives the notice; s.mu is held.
func (s *Server) preempt(i *instance, now time.Time) {
	if i.resource.Status != "RUNNING" {
		return
	}
	i.preempted = true
	i.set(func(r *compute.Instance) { r.Status, r.StatusMessage = "STOPPING", "Instance was preempted." })
	op := s.newOperation(i, "compute.instances.preempted", "system")
	op.set(func(r *compute.Operation) { r.InsertTime, r.StatusMessage = timestamp(now), "Instance was preempted." })
	op.start(now)
	i.notify()
	s.tell(s.opts.Hooks.OnPreempted, i)
	s.after(now, s.vary(s.opts.Latency.Notice), func(now time.Time) {
		op.finish(now)
		if i.resource.Scheduling.InstanceTerminationAction == "DELETE" {
			s.remove(i, now)
			return
		}
		s.halt(i, now)
		i.notify()
	})
}

func (s *Server) getGuestAttributes(c *call) (any, *refusal) {
	instance := s.instances[key{c.zone, c.name}]
	if instance == nil {
		return nil, s.notFound(c, "instances")
	}
	query := c.query.Get("queryPath")
	answer := &compute.GuestAttributes{
		Kind: "compute#guestAttributes", QueryPath: query, QueryValue: &compute.GuestAttributesValue{},
		SelfLink: s.link("zones", c.zone, "instances", c.name, "getGuestAttributes"),
	}
	for _, at := range slices.Sorted(maps.Keys(instance.guest)) {
		if strings.HasPrefix(at, query) {
			answer.QueryValue.Items = append(answer.QueryValue.Items, &compute.GuestAttributesEntry{
				Namespace: path.Dir(at), Key: path.Base(at), Value: instance.guest[at],
			})
		}
	}
	if len(answer.QueryValue.Items) == 0 {
		return nil, refuse(http.StatusNotFound, "notFound", "The resource '%s' of type 'Guest Attribute' was not found.", query)
	}
	return answer, nil
}
