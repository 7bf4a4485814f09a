package postgres

import (
	"context"
	"sync"

	"github.com/anylock/anylock"
)

// identity is what tells attempts and grants apart.
type identity struct{ name, id string }

func of(g anylock.Grant) identity { return identity{g.Name, g.ID} }

// holds knows the attempts and grants of this process: a row lock itself has no ID.
type holds struct {
	mu     sync.Mutex
	byID   map[identity]*hold
	closed bool
}

// hold is an attempt, and then a grant.
type hold struct {
	id        identity
	session   *session // nil: not granted yet
	grant     anylock.Grant
	noted     *noted
	abandoned context.Context // ends when it is released before it is granted
	abandon   context.CancelFunc
	ended     <-chan struct{} // closed when nobody wants the attempt any more
	settled   chan struct{}   // closed when it is over
}

// begin notes an attempt. If the ID is granted already, it returns that; if it is under way, the earlier attempt is given up.
func (h *holds) begin(ctx context.Context, id identity) (*hold, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, anylock.ErrClosed
	}
	if old := h.byID[id]; old != nil {
		if old.session != nil {
			return &hold{id: id, session: old.session, grant: old.grant}, nil
		}
		old.abandon()
	}
	n := &hold{id: id, ended: ctx.Done(), settled: make(chan struct{})}
	n.abandoned, n.abandon = context.WithCancel(context.Background())
	if h.byID == nil {
		h.byID = make(map[identity]*hold)
	}
	h.byID[id] = n
	return n, nil
}

// leaving returns a channel that is closed when an attempt at the name that nobody wants any more has left the server's
// queue, or nil if there is none: for a moment it may have the lock.
func (h *holds) leaving(name string) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, n := range h.byID {
		if id.name == name && n.session == nil {
			select {
			case <-n.ended:
				return n.settled
			default:
			}
		}
	}
	return nil
}

// settle notes how an attempt ended; a nil session is a failure. It reports false if it was given up meanwhile.
func (h *holds) settle(n *hold, grant anylock.Grant, session *session) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer close(n.settled)
	defer n.abandon()
	if h.byID[n.id] != n {
		return false
	}
	if session == nil {
		delete(h.byID, n.id)
		return false
	}
	n.session, n.grant, n.noted = session, grant, notedNow()
	return true
}

// find returns a grant, or nil.
func (h *holds) find(id identity) *hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := h.byID[id]; n != nil && n.session != nil {
		return n
	}
	return nil
}

// end forgets a grant, or gives up an attempt that is under way, and returns it; nil: there is none.
func (h *holds) end(id identity) *hold {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.byID[id]
	if n != nil {
		delete(h.byID, id)
		n.abandon()
	}
	return n
}

// closeAll gives up all attempts and returns the sessions of all grants.
func (h *holds) closeAll() (sessions []*session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, n := range h.byID {
		if n.session != nil {
			sessions = append(sessions, n.session)
		} else {
			n.abandon()
		}
	}
	h.byID = nil
	return sessions
}
