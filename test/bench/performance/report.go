package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Between these lines of the document lie the results, and those of queues.
const (
	resultsBegin = "<!-- results: written by test/bench/performance -->"
	resultsEnd   = "<!-- end of results -->"
	queuesBegin  = "<!-- queues: written by test/bench/performance -only baseline -->"
	queuesEnd    = "<!-- end of queues -->"
)

// report is all that was measured.
type report struct {
	settings settings
	writes   []life
	restarts []restarts
	scales   []scale
	scraped  *scraped
	queues   *queues
}

func newReport(s settings) *report { return &report{settings: s} }

// publish prints the report and writes it into the document, when one is named.
func (r *report) publish() error {
	if r.settings.only != "baseline" {
		text := r.markdown()
		fmt.Println(text)
		if r.settings.doc != "" {
			if err := replaceResults(r.settings.doc, resultsBegin, resultsEnd, text); err != nil {
				return err
			}
		}
	}
	if r.queues == nil {
		return nil
	}
	text := r.queues.markdown()
	fmt.Println(text)
	if r.settings.doc == "" {
		return nil
	}
	return replaceResults(r.settings.doc, queuesBegin, queuesEnd, text)
}

// markdown is the report as text, that of queues left out.
func (r *report) markdown() string {
	var out strings.Builder
	fmt.Fprintf(&out, "Measured with %d processors (%s/%s) by\n\n```sh\n%s\n```\n",
		runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, strings.TrimSpace("go run ./test/bench/performance "+strings.Join(r.settings.arguments, " ")))
	if len(r.writes) > 0 {
		r.writesTable(&out)
	}
	restartTable(&out, r.restarts, r.settings.workers)
	if len(r.scales) > 0 {
		r.scaleTables(&out)
	}
	if r.scraped != nil {
		r.scrapeTable(&out)
	}
	return strings.TrimRight(out.String(), "\n")
}

func (r *report) writesTable(out *strings.Builder) {
	kinds := map[write]bool{}
	for _, counted := range r.writes {
		for kind := range counted.writes {
			kinds[kind] = true
		}
	}
	sorted := slices.SortedFunc(maps.Keys(kinds), func(a, b write) int {
		return cmp.Or(cmp.Compare(a.verb, b.verb), cmp.Compare(a.resource, b.resource))
	})
	fmt.Fprintf(out, "\nWrites of the manager per job, from creation to Completed (%d jobs of %d workers, with checkpoints on a claim):\n\n",
		r.settings.lifeJobs, r.settings.workers)
	row(out, r.writes, "write", func(l life) string { return l.name })
	fmt.Fprintf(out, "|---%s\n", strings.Repeat("|---:", len(r.writes))+"|")
	for _, kind := range sorted {
		row(out, r.writes, kind.verb+" "+kind.resource, func(l life) string { return each(l.writes[kind], l.jobs) })
	}
	row(out, r.writes, "**all**", func(l life) string { return "**" + each(sum(l.writes), l.jobs) + "**" })
	row(out, r.writes, "refused by the API server, of these", func(l life) string { return each(l.refused, l.jobs) })
	row(out, r.writes, "scrapes that brought new figures", func(l life) string { return each(int(l.newAnswers), l.jobs) })
	row(out, r.writes, fmt.Sprintf("**writes in %.0f s of unchanged jobs**, half of them finished, all jobs together", unchanged.Seconds()),
		func(l life) string { return fmt.Sprintf("**%d**", l.resyncWrites) })
	row(out, r.writes, "reconciliations meanwhile", func(l life) string { return fmt.Sprintf("%.0f", l.resyncLooks) })
}

func row(out *strings.Builder, lives []life, title string, cell func(life) string) {
	fmt.Fprintf(out, "| %s |", title)
	for _, l := range lives {
		fmt.Fprintf(out, " %s |", cell(l))
	}
	fmt.Fprintln(out)
}

func each(count, jobs int) string { return fmt.Sprintf("%.2f", float64(count)/float64(jobs)) }

func (r *report) scaleTables(out *strings.Builder) {
	fmt.Fprintf(out, "\nTime until all pods exist, of jobs of %d workers created at once (%s):\n\n", r.settings.workers, rounds(r.settings.rounds))
	fmt.Fprintln(out, "| jobs | pods | bare Indexed Jobs | TrainingJobs | ratio | TrainingJobs, all Running |")
	fmt.Fprintln(out, "|---:|---:|---:|---:|---:|---:|")
	for _, s := range r.scales {
		training := times(s.training, func(l load) time.Duration { return l.pods })
		fmt.Fprintf(out, "| %d | %d | %s | %s | **%.2f** | %s |\n", s.jobs, s.jobs*s.workers, spread(s.bare), spread(training),
			median(training).Seconds()/median(s.bare).Seconds(),
			spread(times(s.training, func(l load) time.Duration { return l.running })))
	}
	fmt.Fprint(out, "\nThe manager meanwhile, and on until all jobs are Completed:\n\n")
	fmt.Fprintln(out, "| jobs | workers report figures | CPU per job until Running | CPU per job until Completed | peak memory until Running | peak memory until Completed |")
	fmt.Fprintln(out, "|---:|---|---:|---:|---:|---:|")
	for _, s := range r.scales {
		loadRow(out, s.jobs, "no", s.training)
		loadRow(out, s.jobs, "yes (one round)", []load{s.scraped})
	}
}

func loadRow(out *strings.Builder, jobs int, title string, loads []load) {
	middle := func(of func(load) time.Duration) float64 { return perJob(median(times(loads, of)), jobs) }
	megabytes := func(of func(load) int64) int64 {
		var values []int64
		for _, l := range loads {
			values = append(values, of(l))
		}
		return median(values) / 1e6
	}
	fmt.Fprintf(out, "| %d | %s | **%.1f ms** | %.1f ms | **%d MB** | %d MB |\n", jobs, title,
		middle(func(l load) time.Duration { return l.start }), middle(func(l load) time.Duration { return l.life }),
		megabytes(func(l load) int64 { return l.memoryStart }), megabytes(func(l load) int64 { return l.memory }))
}

func rounds(count int) string {
	if count == 1 {
		return "one round"
	}
	return fmt.Sprintf("median of %d rounds in turn, in brackets the least and the most", count)
}

func times(loads []load, of func(load) time.Duration) []time.Duration {
	var values []time.Duration
	for _, l := range loads {
		values = append(values, of(l))
	}
	return values
}

func spread(values []time.Duration) string {
	if len(values) == 1 {
		return fmt.Sprintf("%.2f s", values[0].Seconds())
	}
	return fmt.Sprintf("%.2f s (%.2f–%.2f)", median(values).Seconds(), slices.Min(values).Seconds(), slices.Max(values).Seconds())
}

// replaceResults puts the text between two marks in a document.
func replaceResults(path, begin, end, text string) error {
	document, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, begun := strings.Cut(string(document), begin)
	_, after, ended := strings.Cut(rest, end)
	if !begun || !ended {
		return fmt.Errorf("%s lacks the lines %q and %q, between which the results go", path, begin, end)
	}
	return os.WriteFile(path, []byte(before+begin+"\n\n"+text+"\n\n"+end+after), 0o644)
}
