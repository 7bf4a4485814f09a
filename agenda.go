package anylock

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// agenda does jobs in batches when they are due. However many jobs there are, it has one goroutine, which goes away soon
// after the last job, and as many more as batches are being done.
type agenda[T any] struct {
	job     func(T) *job // of an item
	run     func([]T)    // does a batch; returns by itself after a bounded time
	tick    func()       // called at least once a second while there are jobs
	batch   int          // items in a batch at most
	workers int          // batches at a time at most

	mu      sync.Mutex
	items   jobHeap[T]
	active  int
	running bool
	stopped bool
	wakeAt  time.Time
	changed chan struct{}
	loops   tracker // the loop and the batches
}

// job is the agenda's part of an item.
type job struct {
	due   time.Time
	slack time.Duration // how much earlier it may be done, to share a batch
	place int           // in the heap, counted from 1; 0: not in it
}

const agendaNap = time.Second

// add puts an item on the agenda, or moves it there.
func (a *agenda[T]) add(item T, due time.Time, slack time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopped {
		return
	}
	j := a.job(item)
	j.due, j.slack = due, slack
	if a.items.job == nil {
		a.items.job = a.job
		a.changed = make(chan struct{}, 1)
	}
	if j.place > 0 {
		heap.Fix(&a.items, j.place-1)
	} else {
		heap.Push(&a.items, item)
	}
	if !a.running {
		a.running = true
		a.wakeAt = time.Time{}
		a.loops.run(a.loop)
	} else if due.Before(a.wakeAt) {
		a.nudge()
	}
}

// remove takes an item off the agenda if it is on it.
func (a *agenda[T]) remove(item T) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if j := a.job(item); j.place > 0 {
		heap.Remove(&a.items, j.place-1)
	}
}

// drain waits until there is nothing to do and nothing being done, or ctx ends.
func (a *agenda[T]) drain(ctx context.Context) { a.loops.wait(ctx) }

// hurry makes all that is on the agenda due now.
func (a *agenda[T]) hurry() {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for _, item := range a.items.items {
		a.job(item).due = now
	}
	a.nudge()
}

// stop takes no more jobs, and returns those that are left undone.
func (a *agenda[T]) stop() (left []T) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped = true
	left, a.items.items = a.items.items, nil
	for _, item := range left {
		a.job(item).place = 0
	}
	a.nudge()
	return left
}

func (a *agenda[T]) nudge() {
	select {
	case a.changed <- struct{}{}:
	default: // also when there is no channel yet, and so no loop
	}
}

func (a *agenda[T]) loop() {
	nap := time.NewTimer(agendaNap)
	defer nap.Stop()
	for {
		if a.tick != nil {
			a.tick()
		}
		a.mu.Lock()
		if a.stopped || len(a.items.items) == 0 {
			a.running = false
			a.mu.Unlock()
			return
		}
		sleep := agendaNap
		if a.active < a.workers {
			if batch := a.due(time.Now()); len(batch) > 0 {
				a.active++
				a.mu.Unlock()
				a.loops.run(func() {
					a.run(batch)
					a.mu.Lock()
					a.active--
					a.nudge()
					a.mu.Unlock()
				})
				continue
			}
			sleep = min(sleep, time.Until(a.job(a.items.items[0]).due))
		}
		a.wakeAt = time.Now().Add(sleep)
		a.mu.Unlock()

		nap.Reset(sleep)
		select {
		case <-nap.C:
		case <-a.changed:
		}
	}
}

// due takes a batch off the heap: nothing unless its first is due, and then all that may be done by now.
func (a *agenda[T]) due(now time.Time) (batch []T) {
	for len(a.items.items) > 0 && len(batch) < a.batch {
		j := a.job(a.items.items[0])
		wait := j.due.Sub(now)
		if wait > 0 && (len(batch) == 0 || wait > j.slack) {
			break
		}
		batch = append(batch, heap.Pop(&a.items).(T))
	}
	return batch
}

type jobHeap[T any] struct {
	job   func(T) *job
	items []T
}

func (h *jobHeap[T]) Len() int           { return len(h.items) }
func (h *jobHeap[T]) Less(i, j int) bool { return h.job(h.items[i]).due.Before(h.job(h.items[j]).due) }

func (h *jobHeap[T]) Swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.job(h.items[i]).place, h.job(h.items[j]).place = i+1, j+1
}

func (h *jobHeap[T]) Push(x any) {
	h.items = append(h.items, x.(T))
	h.job(x.(T)).place = len(h.items)
}

func (h *jobHeap[T]) Pop() any {
	var none T
	last := len(h.items) - 1
	item := h.items[last]
	h.items[last] = none // let it go
	h.items = h.items[:last]
	h.job(item).place = 0
	return item
}
