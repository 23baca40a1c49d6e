package sqlstore

import (
	"fmt"
	"strings"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/jobs"
)

// conditions of a filter on columns that the tables of jobs and of counts both have, with numbered parameters. Among, with the number in
// the place of %d, says that a namespace is one of the list, which each database takes in its own way.
func conditions(filter jobs.Filter, among string, list any) (string, []any) {
	where, arguments := []string{"true"}, []any{}
	add := func(condition string, argument any) {
		arguments = append(arguments, argument)
		where = append(where, fmt.Sprintf(condition, len(arguments)))
	}
	if filter.Namespaces != nil {
		add(among, list)
	}
	if filter.Status != "" {
		add("status = $%d", string(filter.Status))
	}
	if filter.Type != "" {
		add("type = $%d", filter.Type)
	}
	if filter.Queue != "" {
		add("queue = $%d", filter.Queue)
	}
	if filter.PriorityMin > 0 {
		add("priority >= $%d", filter.PriorityMin)
	}
	return strings.Join(where, " AND "), arguments
}
