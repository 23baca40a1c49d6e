package spotinstancevm

import (
	"cmp"
	"time"

	"github.com/dcnlab/spot-training-operator/internal/cloud"
)

// gone deletes an instance whose deletion is in the status, and takes it off when it is known not to exist.
func (p *planner) gone(i *instance) {
	create, remove := &i.memo.create, &i.memo.remove
	// An operation that may not be read tells nothing: then the list alone does.
	blind := i.isConfirmed() && (create.isUnreadable() || remove.isUnreadable())
	switch {
	case create.isSent() && !create.isSettled() && create.operation.Name != "" && !blind:
		// It may not exist yet: deleted now, it would come after.
		if p.isDue(create) {
			p.do(actAwait, i.Name)
		}
	case !remove.isSent() && !i.isConfirmed() && i.seen == nil:
		p.unconfirmed(i)
	case !remove.isSent():
		if p.reachable {
			p.do(actDelete, i.Name)
		}
	case !remove.isSettled() && remove.operation.Name != "" && blind && i.seen == nil && p.listed[i.Zone].After(remove.sentAt):
		p.leave(i)
	case !remove.isSettled() && remove.operation.Name != "" && blind:
		p.problem = problemOf(cmp.Or(create.err, remove.err), "a look at an operation")
		p.do(actRefresh, i.Zone)
	case !remove.isSettled() && remove.operation.Name != "":
		if p.isDue(remove) {
			p.do(actAwait, i.Name)
		}
	case !remove.isSettled(): // the answer was lost, or the request came at a bad time
		i.Message = short(remove.err)
		p.repeat(i)
	case remove.err == nil || (cloud.ClassOf(remove.err) == cloud.NotFound && p.isCertainlyGone(i)):
		p.leave(i)
	case cloud.ClassOf(remove.err) == cloud.NotFound:
		p.do(actRefresh, i.Zone)
	default:
		i.Message = short(remove.err)
		p.problem = problemOf(remove.err, "the deletion of instance "+i.Name)
		p.repeat(i)
	}
}

func (p *planner) repeat(i *instance) {
	if p.reachable && p.isDue(&i.memo.remove) {
		p.do(actDelete, i.Name)
	}
}

// isCertainlyGone says whether an instance that the provider does not know cannot come into being any more: it has existed,
// or a list that began after all requests does not show it either.
func (p *planner) isCertainlyGone(i *instance) bool {
	if i.isConfirmed() || (i.memo.create.isSettled() && i.memo.create.err == nil) {
		return true
	}
	return i.seen == nil && p.listed[i.Zone].After(i.memo.remove.settledAt)
}

// unconfirmed deals with an entry whose request an earlier process may have sent or not. The provider is asked
// first: what has that name may belong to others.
func (p *planner) unconfirmed(i *instance) {
	create := &i.memo.create
	switch {
	case create.isSettled() && create.err != nil: // it was refused
		p.leave(i)
	case !p.reachable:
	case i.memo.lookedAt.IsZero():
		p.do(actLook, i.Name)
	case !p.listed[i.Zone].After(i.memo.lookedAt):
		p.do(actRefresh, i.Zone)
	default:
		p.leave(i)
	}
}

// leave takes an instance off the status that does not exist, after its Node and what it joined with.
func (p *planner) leave(i *instance) {
	switch {
	case i.node != nil && i.node.DeletionTimestamp == nil:
		p.do(actDropNode, i.Name)
	case i.node != nil:
		p.d.lookAgain(time.Second)
	case !i.memo.nodeless:
		p.do(actFindNode, i.Name)
	case !i.memo.revoked:
		p.do(actRevoke, i.Name)
	default:
		i.dropped = true
		p.d.memory = append(p.d.memory, func(m *vmMemo) {
			delete(m.instances, i.Name)
			m.ended[i.Name] = p.now
		})
	}
}
