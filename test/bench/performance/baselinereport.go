package performance

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/dcnlab/spot-training-operator/test/bench/baseline"
)

// waitsTable says how long the jobs of each class waited, from the request to create one to its phase Scheduled.
func waitsTable(out io.Writer, l *queueLoad) {
	fmt.Fprintln(out, "| class | jobs | from creation to Scheduled, mean | median | 99 % | most | Kueue's threshold for the mean |")
	fmt.Fprintln(out, "|---|---:|---:|---:|---:|---:|---:|")
	for _, class := range baseline.Classes() {
		var waits []time.Duration
		for _, j := range l.jobs {
			if j.Class.Name == class.Name {
				waits = append(waits, j.scheduled.Sub(j.sent))
			}
		}
		slices.Sort(waits)
		fmt.Fprintf(out, "| %s | %d | **%s** | %s | %s | %s | %.0f s |\n", class.Name, len(waits), seconds(mean(waits)),
			seconds(share(waits, 0.5)), seconds(share(waits, 0.99)), seconds(share(waits, 1)), class.Threshold.Seconds())
	}
}

// usageTable says what the processor time of each program was, and the most memory that the manager had resident, in bytes.
func usageTable(out io.Writer, jobs int, wall time.Duration, used map[string]time.Duration, memory int64) {
	fmt.Fprint(out, "\nWhat the programs used meanwhile:\n\n| program | CPU | per job |\n|---|---:|---:|\n")
	var all time.Duration
	for _, part := range []struct{ name, title string }{
		{"kube-apiserver", "API server"}, {"etcd", "etcd"}, {managerName, fmt.Sprintf("manager, with %d MB of memory at most", memory/1e6)},
		{ownTime, "the load, in place of users, scheduler and kubelets"},
	} {
		all += used[part.name]
		fmt.Fprintf(out, "| %s | %.1f s | %.2f ms |\n", part.title, used[part.name].Seconds(), perJob(used[part.name], jobs))
	}
	fmt.Fprintf(out, "| all, %.0f %% of what the processors had | %.1f s | %.2f ms |\n",
		100*all.Seconds()/wall.Seconds()/float64(runtime.NumCPU()), all.Seconds(), perJob(all, jobs))
}

// requestsTable has the requests that changed something, of all clients.
func requestsTable(out io.Writer, jobs int, writes map[write]int) {
	fmt.Fprint(out, "\nRequests that write, per job:\n\n| by | write | |\n|---|---|---:|\n")
	kinds := make([]write, 0, len(writes))
	for kind, count := range writes {
		if count > 0 {
			kinds = append(kinds, kind)
		}
	}
	slices.SortFunc(kinds, func(a, b write) int {
		return cmp.Or(-cmp.Compare(writes[a], writes[b]), cmp.Compare(a.resource, b.resource), cmp.Compare(a.verb, b.verb))
	})
	by := map[write]string{
		{"aijobs", "POST"}: "user", {"pods/binding", "POST"}: "scheduler and kubelet", {"pods/status", "PUT"}: "scheduler and kubelet",
		{"aijobs/status", "PATCH"}: "manager", {"pods", "POST"}: "manager", {"events", "POST"}: "manager", {"aijobqueues/status", "PATCH"}: "manager",
	}
	others := 0
	for _, kind := range kinds {
		if by[kind] == "" {
			others += writes[kind]
			continue
		}
		fmt.Fprintf(out, "| %s | %s %s | %s |\n", by[kind], kind.verb, kind.resource, ofEach(writes[kind], jobs))
	}
	if others > 0 {
		fmt.Fprintf(out, "| all | others | %s |\n", ofEach(others, jobs))
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
