package performance

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/dcnlab/spot-training-operator/test/bench/baseline"
)

// write writes the report.
func (q *queues) write(out *strings.Builder) {
	fmt.Fprintln(out)
	fmt.Fprintf(out, "All **%d of %d** AIJobs Succeeded, **%.0f s** after the first was created (Kueue's threshold: %.0f s; the quotas alone: %.0f s).\n",
		q.jobs, q.jobs, q.wall.Seconds(), baseline.Threshold.Seconds(), baseline.AtLeast.Seconds())
	fmt.Fprintf(out, "The last was created %.0f s after its time in the scenario. Pods of one cohort never held more than %d of its %d units.\n\n",
		q.late.Seconds(), q.most, baseline.Queues*baseline.Quota)
	fmt.Fprintln(out, "| class | jobs | from creation to Scheduled, mean | median | 99 % | most | Kueue's threshold for the mean |")
	fmt.Fprintln(out, "|---|---:|---:|---:|---:|---:|---:|")
	for _, class := range baseline.Classes() {
		waits := slices.Sorted(slices.Values(q.waits[class.Name]))
		fmt.Fprintf(out, "| %s | %d | **%s** | %s | %s | %s | %.0f s |\n", class.Name, len(waits), seconds(mean(waits)),
			seconds(share(waits, 0.5)), seconds(share(waits, 0.99)), seconds(share(waits, 1)), class.Threshold.Seconds())
	}
	all := time.Duration(float64(q.alone) * float64(q.jobs) / float64(q.aloneJobs))
	fmt.Fprintf(out, "\nThe seven requests that none of them can do without, sent right after by %d clients for %d jobs more with no one watching, took %.1f ms per job:\n"+
		"**%.0f s** for %d jobs. The whole took **%.1f times** as long.\n",
		aloneClients, q.aloneJobs, perJob(q.alone, q.aloneJobs), all.Seconds(), q.jobs, q.wall.Seconds()/all.Seconds())
	q.usage(out)
	q.writesTable(out)
}

func (q *queues) usage(out *strings.Builder) {
	fmt.Fprint(out, "\nWhat the programs used meanwhile:\n\n| program | CPU | per job |\n|---|---:|---:|\n")
	var all time.Duration
	for _, part := range []struct{ name, title string }{
		{"kube-apiserver", "API server"}, {"etcd", "etcd"}, {managerName, fmt.Sprintf("manager, with %d MB of memory at most", q.memory/1e6)},
		{ownTime, "the load, in place of users, scheduler and kubelets"},
	} {
		used := q.used[part.name]
		all += used
		fmt.Fprintf(out, "| %s | %.1f s | %.2f ms |\n", part.title, used.Seconds(), perJob(used, q.jobs))
	}
	fmt.Fprintf(out, "| all, %.0f %% of what the processors had | %.1f s | %.2f ms |\n",
		100*all.Seconds()/q.wall.Seconds()/float64(runtime.NumCPU()), all.Seconds(), perJob(all, q.jobs))
}

func (q *queues) writesTable(out *strings.Builder) {
	fmt.Fprint(out, "\nRequests that write, per job:\n\n| by | write | |\n|---|---|---:|\n")
	kinds := make([]write, 0, len(q.writes))
	for kind, count := range q.writes {
		if count > 0 {
			kinds = append(kinds, kind)
		}
	}
	slices.SortFunc(kinds, func(a, b write) int {
		return cmp.Or(-cmp.Compare(q.writes[a], q.writes[b]), cmp.Compare(a.resource, b.resource), cmp.Compare(a.verb, b.verb))
	})
	others := 0
	for _, kind := range kinds {
		who := ""
		switch kind {
		case write{"aijobs", "POST"}:
			who = "user"
		case write{"pods/binding", "POST"}, write{"pods/status", "PUT"}:
			who = "scheduler and kubelet"
		case write{"aijobs/status", "PATCH"}, write{"pods", "POST"}, write{"events", "POST"}, write{"aijobqueues/status", "PATCH"}:
			who = "manager"
		default:
			others += q.writes[kind]
			continue
		}
		fmt.Fprintf(out, "| %s | %s %s | %s |\n", who, kind.verb, kind.resource, each(q.writes[kind], q.jobs))
	}
	if others > 0 {
		fmt.Fprintf(out, "| all | others | %s |\n", each(others, q.jobs))
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

func mean(values []time.Duration) time.Duration {
	var all time.Duration
	for _, value := range values {
		all += value
	}
	return all / time.Duration(max(len(values), 1))
}
