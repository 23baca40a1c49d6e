package scheduler

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dcnlab/spot-training-operator/api/reasons"
)

// roomReason says what a job lacks on the nodes, or that the capacity is reserved for another.
func (c *cycle) roomReason(job *waiting) (string, string) {
	f := job.form
	if job.verdict == noRoom && job.kept == nil {
		if !f.knownAlone {
			f.fitsAlone = !c.lacksClearly(f) && c.roomFor(f, c.free)
			f.knownAlone = true
		}
		if f.fitsAlone {
			ahead := c.ahead(f)
			return reasons.WaitingBehindGang, job.remember(messageKey{verdict: noRoom, behind: ahead}, func() string {
				if ahead == nil {
					return "behind: required capacity is reserved for earlier jobs"
				}
				return fmt.Sprintf("behind %s: required capacity is reserved for an earlier job, which requests %s",
					ahead.title(), ahead.form.wants(&c.layout))
			})
		}
	}
	return reasons.InsufficientCapacity, job.remember(messageKey{verdict: job.verdict}, func() string { return c.lack(f, job.verdict == tooMuchRoom) })
}

// ahead is the job for which room on a form's nodes is kept.
func (c *cycle) ahead(f *form) *waiting {
	for _, p := range f.parts {
		if ahead := p.shape.class.reserved; ahead != nil {
			return ahead
		}
	}
	for _, job := range c.waits {
		if job.kept != nil {
			return job
		}
	}
	return nil
}

// lack says what there is too little of: never enough, not even when no job runs, or not now.
func (c *cycle) lack(f *form, never bool) string {
	if f.missing != "" {
		return fmt.Sprintf("%s: no node has it", f.missing)
	}
	of := ""
	if f.cluster != nil {
		of = " of ComputeCluster " + f.cluster.Name
	}
	where := "on matching nodes" + of
	in, even := c.free, ""
	if never {
		in, even = c.empty, ", even when no job runs"
	}
	for i := range f.parts {
		p := &f.parts[i]
		if len(p.shape.class.nodes) == 0 {
			return fmt.Sprintf("requested %s: no node%s matches the selector, affinity and tolerations", f.wants(&c.layout), of)
		}
		if text := c.lackOf(f, p, where, in, never); text != "" {
			return text + even
		}
	}
	if f.topology == "" {
		return fmt.Sprintf("requested %s: not all fit at once %s%s", f.wants(&c.layout), where, even)
	}
	best := 0
	p := &f.parts[0]
	for _, d := range p.shape.class.byTopology(c.nodes, f.topology) {
		n := 0
		for _, node := range d.nodes {
			n += count(in.of(node), p.shape.request, p.count)
		}
		best = max(best, n)
	}
	return fmt.Sprintf("requested %s %s with the same value of label %s: at most %d of %d fit%s",
		f.wants(&c.layout), where, f.topology, min(best, p.count), p.count, even)
}

// lackOf says what one part lacks, whatever the topology and the other parts; empty if nothing.
func (c *cycle) lackOf(f *form, p *part, where string, in room, never bool) string {
	largest, free := p.shape.class.summary(in, never)
	request, all := p.shape.request, int64(p.count)
	larger := c.layout.first(func(at int) bool { return request[at] > largest[at] })
	scarce := c.layout.first(func(at int) bool { return request[at] > 0 && request[at]*all > free[at] })
	switch {
	case never && larger >= 0:
		return fmt.Sprintf("%s: requested %s on one node, largest matching node has %s",
			c.layout.name(larger), bare(larger, request[larger]), bare(larger, largest[larger]))
	case scarce >= 0:
		have := "available"
		if never {
			have = "total"
		}
		return fmt.Sprintf("%s: requested %s, %s %s %s", c.layout.name(scarce), bare(scarce, request[scarce]*all), have, bare(scarce, free[scarce]), where)
	}
	members := 0
	for _, node := range p.shape.class.nodes {
		if members += count(in.of(node), request, p.count); members >= p.count {
			return ""
		}
	}
	switch {
	case p.count > 1:
		return fmt.Sprintf("requested %s: %d of %d fit %s", f.wants(&c.layout), members, p.count, where)
	case larger >= 0:
		return fmt.Sprintf("%s: requested %s on one node, at most %s available %s",
			c.layout.name(larger), bare(larger, request[larger]), bare(larger, largest[larger]), where)
	}
	return fmt.Sprintf("requested %s on one node: no matching node has all of it available", f.wants(&c.layout))
}

// lacksClearly says whether there is too little of something for a form, whatever the nodes.
func (c *cycle) lacksClearly(f *form) bool {
	for i := range f.parts {
		p := &f.parts[i]
		largest, free := p.shape.class.summary(c.free, false)
		for at, need := range p.shape.request {
			if need > 0 && (need > largest[at] || need*int64(p.count) > free[at]) {
				return true
			}
		}
	}
	return false
}

// summary is the most that one node of the class has of each resource, and what all have together.
func (c *class) summary(in room, never bool) (largest, free []int64) {
	at := 0
	if never {
		at = 1
	}
	if c.largest[at] == nil {
		c.largest[at], c.free[at] = make([]int64, in.width), make([]int64, in.width)
		for _, node := range c.nodes {
			for i, have := range in.of(node) {
				c.largest[at][i] = max(c.largest[at][i], have)
				c.free[at][i] += max(have, 0)
			}
		}
	}
	return c.largest[at], c.free[at]
}

// wants is all that a form's members need.
func (f *form) wants(l *layout) string {
	var all []string
	for _, p := range slices.SortedFunc(slices.Values(f.parts), func(a, b part) int { return a.from - b.from }) {
		var one []string
		for _, at := range l.order {
			if need := p.shape.request[at]; need > 0 && at != pods {
				one = append(one, bare(at, need)+" "+l.name(at))
			}
		}
		text := strings.Join(one, ", ")
		switch {
		case text == "":
			text = plural(p.count, "pod")
		case p.count > 1:
			text = fmt.Sprintf("%d pods of %s each", p.count, text)
		}
		all = append(all, text)
	}
	return strings.Join(all, " and ")
}

// bare is an amount of a resource, as users write it.
func bare(at int, n int64) string {
	switch at {
	case cpu:
		return resource.NewMilliQuantity(n, resource.DecimalSI).String()
	case memory, storage:
		return resource.NewQuantity(n, resource.BinarySI).String()
	}
	return fmt.Sprint(n)
}

// resourceOf are the places of the sums that are limited among the resources.
var resourceOf = [sums]int{jobs: pods, gpuSum: gpus, cpuSum: cpu, memorySum: memory}

// bareSum is an amount of a sum that is limited, amountOf the same with its name.
func bareSum(sum int, n int64) string { return bare(resourceOf[sum], n) }

func amountOf(sum int, n int64) string {
	if sum == jobs {
		return plural(int(n), "job")
	}
	return bareSum(sum, n) + " " + names[resourceOf[sum]]
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
