package rbac_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	rbacv1 "k8s.io/api/rbac/v1"
)

// access is a verb on a resource.
type access struct {
	group, resource, verb string // the resource with its subresource, as pods/status; a path for a URL that is no resource
	name                  string // of the only object that is meant; empty for any
}

func (a access) String() string {
	resource := a.resource
	if a.group != "" {
		resource += "." + a.group
	}
	if a.name != "" {
		resource += " " + a.name
	}
	return a.verb + " " + resource
}

// grant is what one rule, by one binding, allows.
type grant struct {
	access

	// binding is the name of the ClusterRoleBinding or, with its namespace as the authorizer writes it, of the RoleBinding.
	binding string
	// namespace is where it is allowed; empty for everywhere.
	namespace string
	// lifted says that the rule was one of a Role, which OLM lets hold everywhere.
	lifted bool
}

// request is one that the API server allowed because of a binding.
type request struct {
	access

	binding   string
	namespace string
}

// grantsOf are all grants of the rules of a role.
func grantsOf(rules []rbacv1.PolicyRule, binding, namespace string) []grant {
	var all []grant
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, verb := range rule.Verbs {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, name := range names {
						all = append(all, grant{access: access{group, resource, verb, name}, binding: binding, namespace: namespace})
					}
				}
			}
			for _, url := range rule.NonResourceURLs {
				all = append(all, grant{access: access{resource: url, verb: verb}, binding: binding, namespace: namespace})
			}
		}
	}
	return all
}

// covers says whether a request was allowed by the grant. Wildcards cover nothing, so that they are found out.
func (g grant) covers(r request) bool {
	return g.binding == r.binding && g.group == r.group && g.resource == r.resource && g.verb == r.verb && (g.name == "" || g.name == r.name)
}

// exception is an access that is granted although no request shows that it is needed.
type exception struct {
	access access
	reason string
	// shared is the name of a binding whose grant another binding gives as well: the log ascribes a request to either, so
	// that the grant may be used or not.
	shared string
}

// comparison is the result of comparing grants with requests.
type comparison struct {
	// findings are what is wrong, one sentence each.
	findings []string
	// table lists every grant with what it was used for.
	table string
}

// compare holds the grants against the requests. own is the namespace of the manager, in which a Role would do.
func compare(grants []grant, requests map[request]int, exceptions []exception, own string) comparison {
	var c comparison
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "BINDING\tGRANTED\tREQUESTS\tIN")
	justified := map[access]bool{}
	slices.SortFunc(grants, func(a, b grant) int {
		return cmp.Or(cmp.Compare(a.binding, b.binding), cmp.Compare(a.group, b.group), cmp.Compare(a.resource, b.resource), cmp.Compare(a.verb, b.verb))
	})
	for _, g := range grants {
		used, namespaces := 0, map[string]bool{}
		for r, times := range requests {
			if g.covers(r) {
				used += times
				namespaces[r.namespace] = true
			}
		}
		reason, shared := reasonFor(g, exceptions)
		where := scopeOf(g, namespaces, own)
		switch {
		case used == 0 && reason == "":
			c.findings = append(c.findings, fmt.Sprintf("%s grants %s, which was never used: take it out of the RBAC marker or manifest, "+
				"add a scenario that uses it, or give the reason in exceptions_test.go", g.binding, g.access))
		case used > 0 && reason != "" && !shared:
			c.findings = append(c.findings, fmt.Sprintf("%s is an exception, but it was used: take it out of exceptions_test.go", g.access))
		case used > 0 && g.namespace == "" && !g.lifted && len(namespaces) == 1 && namespaces[own]:
			c.findings = append(c.findings, fmt.Sprintf("%s grants %s everywhere, but it was only used in the manager's own namespace: "+
				"move it to the Role of config/rbac", g.binding, g.access))
		}
		if reason != "" {
			justified[g.access] = true
			where = "exception: " + reason
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\n", g.binding, g.access, used, where)
	}
	for _, e := range exceptions {
		if !justified[e.access] && e.shared == "" { // one way to install may lack the other binding
			c.findings = append(c.findings, fmt.Sprintf("%s is an exception, but it is not granted: take it out of exceptions_test.go", e.access))
		}
	}
	if err := table.Flush(); err != nil {
		panic(err) // a strings.Builder takes everything
	}
	c.table = text.String()
	return c
}

func reasonFor(g grant, exceptions []exception) (reason string, shared bool) {
	for _, e := range exceptions {
		if e.access == g.access && (e.shared == "" || strings.HasPrefix(g.binding, e.shared)) {
			return e.reason, e.shared != ""
		}
	}
	return "", false
}

// scopeOf says where a grant was used.
func scopeOf(g grant, namespaces map[string]bool, own string) string {
	switch {
	case len(namespaces) == 0:
		return ""
	case g.namespace != "" || len(namespaces) == 1 && namespaces[own]:
		return "its own namespace"
	case namespaces[""]:
		return "the cluster"
	}
	return fmt.Sprintf("%d namespace(s)", len(namespaces))
}
