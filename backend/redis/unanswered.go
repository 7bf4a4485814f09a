package redis

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	unansweredFor  = time.Minute
	unansweredMost = 4096 // more are not remembered: their repetition may look like a loss
)

// unanswered remembers under which label a release was sent that got no answer. When it is tried again it has the same
// label, so that it is not taken for lost what the first try has released.
type unanswered struct {
	some   atomic.Bool // spares the others the mutex
	mu     sync.Mutex
	labels map[string]labelled // by ID
}

type labelled struct {
	label string
	since time.Time
}

// label returns the label to release an ID under.
func (u *unanswered) label(id, fresh string) string {
	if !u.some.Load() {
		return fresh
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if l, ok := u.labels[id]; ok {
		return l.label
	}
	return fresh
}

func (u *unanswered) note(id, label string, answered bool) {
	if answered && !u.some.Load() {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if answered {
		delete(u.labels, id)
		u.some.Store(len(u.labels) > 0)
		return
	}
	if len(u.labels) >= unansweredMost {
		for other, l := range u.labels {
			if time.Since(l.since) > unansweredFor {
				delete(u.labels, other)
			}
		}
	}
	if u.labels == nil {
		u.labels = make(map[string]labelled)
	}
	if len(u.labels) < unansweredMost {
		u.labels[id] = labelled{label, time.Now()}
		u.some.Store(true)
	}
}
