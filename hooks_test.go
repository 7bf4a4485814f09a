package anylock_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/backend/memory"
)

// blockedHandler is that of a log whose reader hangs.
type blockedHandler struct {
	slog.Handler
	level slog.Level
	until chan struct{}
}

func (h blockedHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level }
func (h blockedHandler) WithAttrs([]slog.Attr) slog.Handler               { return h }

func (h blockedHandler) Handle(context.Context, slog.Record) error {
	<-h.until
	return nil
}

// Neither a hook nor another lease waits for a log that hangs.
func TestALogThatHangsHoldsUpNothing(t *testing.T) {
	virtual(t, func(t *testing.T, store *memory.Store, f *faulty) {
		var failing atomic.Bool
		f.renew = func(ctx context.Context, g []anylock.Grant) []anylock.Renewal {
			if failing.Load() {
				return repeat(anylock.Renewal{Err: errCut}, len(g))
			}
			return f.Backend.Renew(ctx, g)
		}
		until := make(chan struct{})
		logger := slog.New(blockedHandler{slog.DiscardHandler, slog.LevelInfo, until})
		var failed, lost, released atomic.Int32
		l := newLocker(t, f, anylock.WithTTL(9*time.Second), anylock.WithLogger(logger), anylock.WithHooks(anylock.Hooks{
			RenewFailed: func(anylock.Event) { failed.Add(1) },
			Lost:        func(anylock.Event) { lost.Add(1) },
			Released:    func(anylock.Event) { released.Add(1) },
		}))
		stolen, kept, late := acquire(t, l, "stolen"), acquire(t, l, "kept"), acquire(t, l, "late")
		store.Steal("stolen")
		time.Sleep(20 * time.Second)
		if stolen.Err() == nil || lost.Load() != 1 {
			t.Errorf("stolen: %v; Lost was called %d times", stolen.Err(), lost.Load())
		}
		if err := kept.Err(); err != nil {
			t.Errorf("a lease that was renewed together with one that is lost: %v", err)
		}
		failing.Store(true)
		time.Sleep(4 * time.Second)
		failing.Store(false)
		if failed.Load() == 0 {
			t.Error("RenewFailed was not called")
		}
		time.Sleep(20 * time.Second)
		if err := kept.Err(); err != nil {
			t.Errorf("after renewals that failed for a while: %v", err)
		}
		store.Steal("late")
		_ = late.Release(bg)
		_ = kept.Release(bg)
		synctest.Wait()
		if lost.Load() != 2 || released.Load() != 1 {
			t.Errorf("Lost was called %d times, and Released %d times", lost.Load(), released.Load())
		}
		close(until)
	})
}

// The hook Waiting comes before the line in the log, even at the level Debug.
func TestWaitingIsToldBeforeItIsLogged(t *testing.T) {
	virtual(t, func(t *testing.T, store *memory.Store, f *faulty) {
		held := acquire(t, newLocker(t, store.Client()), "x")
		until, told := make(chan struct{}), make(chan struct{})
		logger := slog.New(blockedHandler{slog.DiscardHandler, slog.LevelDebug, until})
		l := newLocker(t, f, anylock.WithLogger(logger), anylock.WithHooks(anylock.Hooks{Waiting: func(anylock.Event) { close(told) }}))
		got := make(chan *anylock.Lease)
		go func() { got <- acquire(t, l, "x") }()
		<-told
		close(until)
		_ = held.Release(bg)
		_ = (<-got).Release(bg)
	})
}
