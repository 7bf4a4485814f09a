// Package scheduler does jobs in batches when they are due.
package scheduler

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/anylock/anylock/internal/background"
)

// Scheduler does jobs in batches when they are due. However many jobs there are, it has one goroutine, which goes away soon
// after the last job, and as many more as batches are being done. Its
// fields are set before its first use.
type Scheduler[T any] struct {
	Job     func(T) *Job // of an item
	Run     func([]T)    // does a batch; returns by itself after a bounded time
	Tick    func()       // called at least once a second while there are jobs; nil: nothing is
	Batch   int          // items in a batch at most
	Workers int          // batches at a time at most

	mu      sync.Mutex
	items   jobHeap[T]
	active  int
	running bool
	stopped bool
	wakeAt  time.Time
	changed chan struct{}
	loops   background.Group // the loop and the batches
}

// Job is the scheduler's part of an item.
type Job struct {
	due   time.Time
	slack time.Duration // how much earlier it may be done, to share a batch
	place int           // in the heap, counted from 1; 0: not in it
}

const maxSleep = time.Second

// Add schedules an item, or moves it if it is scheduled. After Stop it does nothing.
func (s *Scheduler[T]) Add(item T, due time.Time, slack time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	j := s.Job(item)
	j.due, j.slack = due, slack
	if s.items.job == nil {
		s.items.job = s.Job
		s.changed = make(chan struct{}, 1)
	}
	if j.place > 0 {
		heap.Fix(&s.items, j.place-1)
	} else {
		heap.Push(&s.items, item)
	}
	if !s.running {
		s.running = true
		s.wakeAt = time.Time{}
		s.loops.Go(s.loop)
	} else if due.Before(s.wakeAt) {
		s.nudge()
	}
}

// Remove takes an item out if it is scheduled.
func (s *Scheduler[T]) Remove(item T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j := s.Job(item); j.place > 0 {
		heap.Remove(&s.items, j.place-1)
	}
}

// Drain waits until there is nothing to do and nothing being done, or ctx ends.
func (s *Scheduler[T]) Drain(ctx context.Context) { s.loops.Wait(ctx) }

// Hurry makes all that is scheduled due now.
func (s *Scheduler[T]) Hurry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, item := range s.items.items {
		s.Job(item).due = now
	}
	s.nudge()
}

// Stop takes no more jobs, and returns those that are left undone.
func (s *Scheduler[T]) Stop() (left []T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	left, s.items.items = s.items.items, nil
	for _, item := range left {
		s.Job(item).place = 0
	}
	s.nudge()
	return left
}

func (s *Scheduler[T]) nudge() {
	select {
	case s.changed <- struct{}{}:
	default: // also when there is no channel yet, and so no loop
	}
}

func (s *Scheduler[T]) loop() {
	nap := time.NewTimer(maxSleep)
	defer nap.Stop()
	for {
		if s.Tick != nil {
			s.Tick()
		}
		s.mu.Lock()
		if s.stopped || len(s.items.items) == 0 {
			s.running = false
			s.mu.Unlock()
			return
		}
		sleep := maxSleep
		if s.active < s.Workers {
			if batch := s.due(time.Now()); len(batch) > 0 {
				s.active++
				s.mu.Unlock()
				s.loops.Go(func() {
					s.Run(batch)
					s.mu.Lock()
					s.active--
					s.nudge()
					s.mu.Unlock()
				})
				continue
			}
			sleep = min(sleep, time.Until(s.Job(s.items.items[0]).due))
		}
		s.wakeAt = time.Now().Add(sleep)
		s.mu.Unlock()

		nap.Reset(sleep)
		select {
		case <-nap.C:
		case <-s.changed:
		}
	}
}

// due takes a batch off the heap: nothing unless its first is due, and then all that may be done by now.
func (s *Scheduler[T]) due(now time.Time) (batch []T) {
	for len(s.items.items) > 0 && len(batch) < s.Batch {
		j := s.Job(s.items.items[0])
		wait := j.due.Sub(now)
		if wait > 0 && (len(batch) == 0 || wait > j.slack) {
			break
		}
		batch = append(batch, heap.Pop(&s.items).(T))
	}
	return batch
}

type jobHeap[T any] struct {
	job   func(T) *Job
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
