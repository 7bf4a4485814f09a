package anylock_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/backend/memory"
)

func TestTryDo(t *testing.T) {
	everyWake(t, func(t *testing.T, store *memory.Store) {
		l, other := newLocker(t, store.Client()), newLocker(t, store.Client())
		called := 0
		work := func(ctx context.Context, lease *anylock.Lease) error {
			called++
			if lease.Err() != nil || ctx.Err() != nil {
				t.Errorf("inside: %v, %v", lease.Err(), ctx.Err())
			}
			_, err := other.TryAcquire(bg, "x")
			wantErr(t, err, anylock.ErrHeld)
			wantErr(t, l.TryDo(bg, "x", func(context.Context, *anylock.Lease) error { called++; return nil }), anylock.ErrHeld)
			return nil
		}
		if err := l.TryDo(bg, "x", work); err != nil || called != 1 {
			t.Fatalf("called %d times: %v", called, err)
		}
		lease := acquire(t, other, "x")
		wantErr(t, l.TryDo(bg, "x", work), anylock.ErrHeld)
		if called != 1 {
			t.Error("called although somebody else has the lock")
		}
		_ = lease.Release(bg)
		if err := l.TryDo(bg, "x", work); err != nil || called != 2 {
			t.Errorf("called %d times, after the release: %v", called, err)
		}
		// A loss is told as Do tells it.
		err := l.TryDo(bg, "x", func(ctx context.Context, lease *anylock.Lease) error {
			store.Steal("x")
			wantErr(t, lease.Renew(ctx), anylock.ErrLost)
			return nil
		})
		wantErr(t, err, anylock.ErrLost)
	})
}

func TestGuaranteesCanBeReadAndCompared(t *testing.T) {
	g := memory.NewStore(anylock.WakeQueue).Client().Describe().Guarantees
	text, _, _ := strings.Cut(g.String(), " (")
	again, err := anylock.ParseGuarantees(text)
	if err != nil {
		t.Fatal(err)
	}
	again.Clock, again.HoldCost = g.Clock, g.HoldCost
	if again != g {
		t.Errorf("%v was read as %v", g, again)
	}
	if err := g.AtLeast(anylock.Guarantees{FIFO: true, Exclusion: anylock.ScopeProcess}); err != nil {
		t.Error(err)
	}
	err = g.AtLeast(anylock.Guarantees{Exclusion: anylock.ScopeQuorum})
	if !errors.Is(err, anylock.ErrInvalid) || !strings.Contains(err.Error(), "quorum") {
		t.Errorf("got %v", err)
	}
}
