package fakegce

import (
	"fmt"
	"net/http"
	"regexp"
	"time"

	"google.golang.org/api/compute/v1"
)

type operation struct {
	zone string
	sent[compute.Operation]
}

// accepted is what a request id stands for.
type accepted struct {
	method, zone, name string
	operation          *operation
}

var requestID = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// once does what a request wants, unless a request of the same id was taken before: then the operation of that one is
// the answer, even if it failed. A request that is refused at once leaves its id unused.
func (s *Server) once(c *call, name string, do func() (*operation, *refusal)) (any, *refusal) {
	if name == "" {
		name = c.name
	}
	id := c.query.Get("requestId")
	if id == "00000000-0000-0000-0000-000000000000" || id != "" && !requestID.MatchString(id) {
		return nil, refuse(http.StatusBadRequest, "invalid", "Invalid value for field 'requestId': '%s'. Must be a valid UUID.", id)
	}
	if before := s.requestIDs[id]; id != "" && before != nil {
		if before.method != c.method.Id || before.zone != c.zone || before.name != name {
			s.violations = append(s.violations, fmt.Sprintf("%s of %s: request id %s was used for %s of %s before",
				c.method.Id, name, id, before.method, before.name))
			return nil, refuse(http.StatusBadRequest, "invalid", "Invalid value for field 'requestId': '%s'. It was used for another request.", id)
		}
		return before.operation.json(), nil
	}
	op, no := do()
	if no != nil {
		return nil, no
	}
	if id != "" {
		op.set(func(r *compute.Operation) { r.ClientOperationId = id })
		s.requestIDs[id] = &accepted{c.method.Id, c.zone, name, op}
	}
	return op.json(), nil
}

func (s *Server) newOperation(target *instance, kind, user string) *operation {
	now := s.clock.Now()
	number := s.nextID()
	name := fmt.Sprintf("operation-%d-%016x", now.UnixMilli(), number)
	if user == "system" {
		name = fmt.Sprintf("systemevent-%d-%016x", now.UnixMilli(), number)
	}
	op := &operation{zone: target.zone, sent: sent[compute.Operation]{resource: &compute.Operation{
		Kind: "compute#operation", Id: number, Name: name, OperationType: kind, Status: "PENDING", User: user,
		InsertTime: timestamp(now), Zone: s.link("zones", target.zone), TargetId: target.number,
		TargetLink: s.link("zones", target.zone, "instances", target.resource.Name),
		SelfLink:   s.link("zones", target.zone, "operations", name),
	}}}
	s.operations[key{target.zone, name}] = op
	return op
}

func (o *operation) start(now time.Time) {
	if o.resource.Status == "PENDING" {
		o.set(func(r *compute.Operation) { r.Status, r.StartTime = "RUNNING", timestamp(now) })
	}
}

func (o *operation) finish(now time.Time) {
	o.start(now)
	o.set(func(r *compute.Operation) { r.Status, r.Progress, r.EndTime = "DONE", 100, timestamp(now) })
}

func (o *operation) fail(now time.Time, status int, problem *compute.OperationErrorErrors) {
	o.finish(now)
	o.set(func(r *compute.Operation) {
		r.Error = &compute.OperationError{Errors: []*compute.OperationErrorErrors{problem}}
		r.HttpErrorStatusCode = int64(status)
		r.HttpErrorMessage = http.StatusText(status)
	})
}

func (s *Server) getOperation(c *call) (any, *refusal) {
	if op := s.operations[key{c.zone, c.name}]; op != nil {
		return op.json(), nil
	}
	return nil, s.notFound(c, "operations")
}

func (s *Server) listOperations(c *call) (any, *refusal) {
	return listOf(s, c, "Operation", s.operations)
}

// timestamp in the form that Google writes, with the offset of its headquarters.
func timestamp(t time.Time) string {
	return t.In(time.FixedZone("", -8*3600)).Format("2006-01-02T15:04:05.000-07:00")
}
