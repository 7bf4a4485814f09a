package anylock

import (
	"log/slog"
	"time"

	"github.com/anylock/anylock/internal/logthrottle"
)

// Event is what a hook is told.
type Event struct {
	Backend string
	Name    string
	Token   Token         // zero before there is a grant
	Elapsed time.Duration // how long it waited, or how long it held
	Err     error
}

// Hooks are functions that are told what happens to the locks of a [Locker]; each may be nil. They may be called from
// many goroutines at once, and may call all methods, Close among them. A hook that panics is contained and logged. Waiting
// and Acquired are called by the Acquire that they report and hold it up, so they must not wait for the same lock; a lease
// whose Acquired hook ends the goroutine is released. The others run in goroutines of their own and hold up nothing.
type Hooks struct {
	// Waiting: an Acquire found the lock held and goes on waiting. At most once for each Acquire; Err is the reason.
	Waiting func(Event)
	// Acquired: a lease was granted. Elapsed is the time since the call.
	Acquired func(Event)
	// RenewFailed: a renewal got no answer or an error, and is tried again. Err is the reason.
	RenewFailed func(Event)
	// Lost: a lease ended without being released. Exactly once for each such lease; Elapsed is the time it was held.
	Lost func(Event)
	// Released: a lease was released. Elapsed is the time since it was granted. Err is nil if the store has confirmed it,
	// ErrClosed if Close did it, and ErrUnavailable if the store could not be told and the lock has expired by itself.
	Released func(Event)
}

// call runs a hook in this goroutine.
func (l *Locker) call(hook func(Event), e Event) {
	if hook == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			l.cfg.logger.Error("anylock: a hook panicked", "backend", l.desc.Name, "name", e.Name, "panic", p)
		}
	}()
	e.Backend = l.desc.Name
	hook(e)
}

// tell runs a hook in a goroutine of its own.
func (l *Locker) tell(hook func(Event), events ...Event) {
	if hook == nil {
		return
	}
	go func() {
		told := 0
		defer func() {
			if told < len(events) { // the hook has ended this goroutine
				l.tell(hook, events[told:]...)
			}
		}()
		for _, e := range events {
			told++
			l.call(hook, e)
		}
	}()
}

// troubles are what an operator should see in the log.
type troubles struct {
	logger            *slog.Logger
	renewFailed, lost logthrottle.Kind
}
