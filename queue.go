package anylock

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"
)

// queue lets one caller of this process per name stand at the store; the others wait behind it in the order they came.
// So a process is one contender for a name however many goroutines want it, and two of them can never both win.
type queue struct {
	mu     sync.Mutex
	closed bool
	lines  map[string]*line
	held   int           // leases
	empty  chan struct{} // made by one who waits for none to be held, closed then
}

// line is the queue of one name. It exists while somebody is in front.
type line struct {
	holder    *Lease     // the one in front has the lock
	refused   *HeldError // the one in front was told that somebody else has it
	refusedAt time.Time
	waiters   list.List // of *waiter
}

// waiter gets nil when it is its turn, or the reason why it will not be.
type waiter struct {
	ready chan error // buffered
	try   bool       // it only wants to wait as long as it is not known who has the lock
	since time.Time
	place *list.Element
}

// enter returns nil once the caller is in front for name; it then owes one call of leave. waiting is called before it
// waits, with what is known about the holder. A try waits only for another's attempt to be decided, and not for longer
// than patience.
func (q *queue) enter(ctx context.Context, name string, try bool, patience time.Duration, waiting func(error)) error {
	n, w, held, err := q.join(name, try)
	if w == nil {
		return err
	}
	settled := false
	defer func() {
		if !settled { // a hook has ended this goroutine
			_, _ = q.giveUp(name, n, w)
		}
	}()
	if held != nil {
		waiting(held)
	}
	var expired <-chan time.Time
	if try {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case err := <-w.ready:
		settled = true
		return err
	case <-ctx.Done():
	case <-expired:
		err = Unavailable(fmt.Errorf("another request of this process for the same lock has had no answer for %v", patience))
	}
	settled = true
	held, answer := q.giveUp(name, n, w)
	switch {
	case answer != nil:
		return answer
	case err != nil:
		return err
	}
	return cancelled(ctx, held) // not under the mutex: ctx may be the caller's own kind
}

// join puts the caller in front (no waiter), or behind others, or turns it away (err).
func (q *queue) join(name string, try bool) (n *line, w *waiter, held *HeldError, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, nil, nil, ErrClosed
	}
	if n = q.lines[name]; n == nil {
		if q.lines == nil {
			q.lines = make(map[string]*line)
		}
		q.lines[name] = new(line)
		return nil, nil, nil, nil
	}
	if held = n.verdict(); held != nil && try {
		return nil, nil, nil, held
	}
	w = &waiter{ready: make(chan error, 1), try: try, since: time.Now()}
	w.place = n.waiters.PushBack(w)
	return n, w, held, nil
}

// giveUp takes a waiter out of its line, unless it has been answered: then it passes its turn on, or returns the answer.
func (q *queue) giveUp(name string, n *line, w *waiter) (held *HeldError, answer error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case err := <-w.ready:
		if err != nil {
			return nil, err
		}
		q.next(name, n)
	default:
		n.waiters.Remove(w.place)
	}
	return n.verdict(), nil
}

// verdict is what is known about who has the lock; nil if nothing.
func (n *line) verdict() *HeldError {
	switch {
	case n.holder != nil:
		return &HeldError{Holder: n.holder.holder}
	case n.refused != nil:
		return &HeldError{Holder: n.refused.Holder, RetryAfter: max(n.refused.RetryAfter-time.Since(n.refusedAt), 0)}
	}
	return nil
}

// refuse notes that the store told the one in front who has the lock.
func (q *queue) refuse(name string, held *HeldError) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.lines[name]
	n.refused, n.refusedAt = held, time.Now()
	n.answerTries()
}

// forget notes that it is not known any more who has the lock: the store does not answer the one in front.
func (q *queue) forget(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lines[name].refused = nil
}

// fail tells those who have waited all the while that the store has failed, and for long enough, that it has. Otherwise
// they would find out one after the other.
func (q *queue) fail(name string, err error, since time.Time, patience time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lines[name].answer(func(w *waiter) error {
		if !w.try && time.Since(w.since) >= patience && time.Since(since) >= patience {
			return err
		}
		return nil
	})
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
	q.held++
	n.answerTries()
	return true
}

// answerTries tells those who only try who has the lock, which must be known.
func (n *line) answerTries() {
	n.answer(func(w *waiter) error {
		if w.try {
			return n.verdict()
		}
		return nil
	})
}

// answer turns away the waiters for whom it has an error.
func (n *line) answer(what func(*waiter) error) {
	for e := n.waiters.Front(); e != nil; {
		next := e.Next()
		if err := what(e.Value.(*waiter)); err != nil {
			n.waiters.Remove(e)
			e.Value.(*waiter).ready <- err
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
	if n.holder != nil {
		q.held--
		q.checkEmpty()
	}
	n.holder, n.refused = nil, nil
	first := n.waiters.Front()
	if first == nil {
		delete(q.lines, name)
		return
	}
	n.waiters.Remove(first)
	first.Value.(*waiter).ready <- nil
}

// close turns away all who wait and all who come.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, n := range q.lines {
		n.answer(func(*waiter) error { return ErrClosed })
	}
}

// emptied returns a channel that is closed once no lease is held; it is for a queue that is closed.
func (q *queue) emptied() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.empty == nil {
		q.empty = make(chan struct{})
		q.checkEmpty()
	}
	return q.empty
}

func (q *queue) checkEmpty() {
	if q.empty == nil || q.held > 0 {
		return
	}
	select {
	case <-q.empty:
	default:
		close(q.empty)
	}
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
