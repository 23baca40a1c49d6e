package storageversion

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/dcnlab/spot-training-operator/internal/olm/operatorcondition"
)

// Progress is how far the migrations of all kinds are. It is safe for concurrent use.
type Progress struct {
	mu      sync.Mutex
	kinds   map[string]kindProgress
	changed chan struct{}
}

// kindProgress is how far the migration of one kind is. The zero value is a kind that was not looked at yet.
type kindProgress struct {
	known bool
	// need is empty when there is nothing to migrate.
	need need
	// migrated and failed are objects of the present round; total is how many there are, or 0 before the first page.
	migrated, failed, total int64
	// problem is why the last round failed; empty when it did not, or there was none.
	problem string
}

// Reasons of the verdict, for the condition Upgradeable.
const (
	// ReasonStorageMigrationRunning says that objects are stored in an older version of their kind.
	ReasonStorageMigrationRunning = "StorageMigrationRunning"
	// ReasonStorageVersionsCurrent says that all objects are stored in the newest version of their kind.
	ReasonStorageVersionsCurrent = "StorageVersionsCurrent"
)

// NewProgress starts with nothing known about the CRDs of these names.
func NewProgress(crds []string) *Progress {
	p := &Progress{kinds: map[string]kindProgress{}, changed: make(chan struct{}, 1)}
	for _, crd := range crds {
		p.kinds[crd] = kindProgress{}
	}
	return p
}

// Changed gets a value after every change since the last receive. It has one receiver.
func (p *Progress) Changed() <-chan struct{} { return p.changed }

// Verdict says whether the operator may be upgraded as far as stored objects are concerned: the CRDs of the next version may
// lack a version in which objects are still stored. It returns false while some CRD was not looked at yet.
func (p *Progress) Verdict() (operatorcondition.Verdict, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	needed := map[string]kindProgress{}
	for crd, kind := range p.kinds {
		if !kind.known {
			return operatorcondition.Verdict{}, false
		}
		if kind.need.any() {
			needed[crd] = kind
		}
	}
	return verdict(needed), true
}

// update changes what is known of a kind, tells, and returns it.
func (p *Progress) update(crd string, change func(*kindProgress)) kindProgress {
	p.mu.Lock()
	kind := p.kinds[crd]
	change(&kind)
	p.kinds[crd] = kind
	p.mu.Unlock()
	select {
	case p.changed <- struct{}{}:
	default: // it will be seen with the change before
	}
	return kind
}

func verdict(needed map[string]kindProgress) operatorcondition.Verdict {
	if len(needed) == 0 {
		return operatorcondition.Verdict{
			Upgradeable: true, Reason: ReasonStorageVersionsCurrent,
			Message: "all objects are stored in the newest version of their kind",
		}
	}
	var parts []string
	for crd, kind := range needed {
		parts = append(parts, describe(crd, kind))
	}
	slices.Sort(parts)
	return operatorcondition.Verdict{
		Reason:  ReasonStorageMigrationRunning,
		Message: "objects are being stored in the newest version of their kind: " + strings.Join(parts, "; "),
	}
}

func describe(crd string, kind kindProgress) string {
	text := fmt.Sprintf("%s from %s to %s", crd, strings.Join(kind.need.from, ", "), kind.need.to)
	if kind.total > 0 {
		text += fmt.Sprintf(", %d of %d done", kind.migrated, kind.total)
	}
	if kind.failed > 0 {
		text += fmt.Sprintf(", %d failed", kind.failed)
	}
	if kind.problem != "" {
		text += ", will be tried again: " + kind.problem
	}
	return text
}
