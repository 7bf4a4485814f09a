package anylock

import (
	"container/list"
	"context"
	"sync"
)

// queue lets one caller of this process per name stand at the store; the others wait behind it in the order they came.
// So a process is one contender for a name however many goroutines want it, and two of them can never both win.
type queue struct {
	mu     sync.Mutex
	closed bool
	lines  map[string]*line
}

// line is the queue of one name. It exists while somebody is in front.
type line struct {
	holder  *Lease     // the one in front has the lock
	refused *HeldError // the one in front was told that somebody else has it
	waiters list.List  // of *waiter
}

// waiter gets nil when it is its turn, or the reason why it will not be.
type waiter struct {
	ready chan error // buffered
	try   bool       // it only wants to wait as long as it is not known who has the lock
}

// enter returns nil once the caller is in front for name; it then owes one call of leave. waiting is called before it
// waits, with what is known about the holder.
func (q *queue) enter(ctx context.Context, name string, try bool, waiting func(error)) error {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return ErrClosed
	}
	n := q.lines[name]
	if n == nil {
		if q.lines == nil {
			q.lines = make(map[string]*line)
		}
		q.lines[name] = new(line)
		q.mu.Unlock()
		return nil
	}
	held := n.verdict()
	if held != nil && try {
		q.mu.Unlock()
		return held
	}
	w := &waiter{ready: make(chan error, 1), try: try}
	place := n.waiters.PushBack(w)
	q.mu.Unlock()
	if held != nil {
		waiting(held)
	}

	select {
	case err := <-w.ready:
		return err
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case err := <-w.ready: // it was our turn just now
		if err != nil {
			return err
		}
		q.next(name, n)
	default:
		n.waiters.Remove(place)
	}
	return cancelled(ctx, n.verdict())
}

// verdict is what is known about who has the lock; nil if nothing.
func (n *line) verdict() *HeldError {
	if n.holder != nil {
		return &HeldError{Holder: n.holder.holder}
	}
	return n.refused
}

// refuse notes that the store told the one in front who has the lock.
func (q *queue) refuse(name string, held *HeldError) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.lines[name]
	n.refused = held
	n.answerTries()
}

// hold notes that the one in front has the lock. It reports false when the queue was closed meanwhile.
func (q *queue) hold(name string, lease *Lease) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	n := q.lines[name]
	n.holder = lease
	n.answerTries()
	return true
}

func (n *line) answerTries() {
	for e := n.waiters.Front(); e != nil; {
		next := e.Next()
		if w := e.Value.(*waiter); w.try {
			n.waiters.Remove(e)
			w.ready <- n.verdict()
		}
		e = next
	}
}

// leave is called by the one in front when it is done with the lock.
func (q *queue) leave(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.next(name, q.lines[name])
}

func (q *queue) next(name string, n *line) {
	n.holder, n.refused = nil, nil
	first := n.waiters.Front()
	if first == nil {
		delete(q.lines, name)
		return
	}
	n.waiters.Remove(first)
	first.Value.(*waiter).ready <- nil
}

// close turns away all who wait and all who come, and returns the leases that are held.
func (q *queue) close() (held []*Lease) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, n := range q.lines {
		if n.holder != nil {
			held = append(held, n.holder)
		}
		for e := n.waiters.Front(); e != nil; e = e.Next() {
			e.Value.(*waiter).ready <- ErrClosed
		}
		n.waiters.Init()
	}
	return held
}

// holders returns the leases that are held.
func (q *queue) holders() (held []*Lease) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, n := range q.lines {
		if n.holder != nil {
			held = append(held, n.holder)
		}
	}
	return held
}
