package anylock

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// admission lets so many requests be under way at once as the backend has connections for, and keeps some for renewals
// and for what goes on in the background: those never stand behind acquires, and neither do releases. The time of a request
// begins when it is admitted, so what is spent in this queue is not taken for silence of the store, and no connection is
// given up for it.
type admission struct {
	acquires, releases chan struct{} // the places that are taken; nil: no limit
	answered           atomic.Int64  // when the store answered last, in Unix nanoseconds
}

func newAdmission(most int) *admission {
	a := new(admission)
	if most > 0 {
		kept := max(most/8, 1)
		a.acquires = make(chan struct{}, max(most-2*kept, 1))
		a.releases = make(chan struct{}, max(most-kept, 1))
	}
	return a
}

// note remembers that the store has answered.
func (a *admission) note() { a.answered.Store(time.Now().UnixNano()) }

// enter waits for a place until ctx ends, stop is closed, or the store has not answered anybody for patience.
func (a *admission) enter(ctx context.Context, places chan struct{}, stop <-chan struct{}, patience time.Duration) error {
	select {
	case places <- struct{}{}:
		return nil
	default:
		if places == nil {
			return nil
		}
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case places <- struct{}{}:
			return nil
		case <-ctx.Done():
			return errNoAnswer
		case <-stop:
			return ErrClosed
		case <-timer.C:
			silent := time.Since(time.Unix(0, a.answered.Load()))
			if silent >= patience {
				return Unavailable(fmt.Errorf("all %d places for requests of this kind are taken, and none has been answered for %v", cap(places), patience))
			}
			timer.Reset(patience - silent)
		}
	}
}

// leave gives a place back.
func (*admission) leave(places chan struct{}) {
	if places != nil {
		<-places
	}
}
