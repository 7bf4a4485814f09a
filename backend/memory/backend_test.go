package memory_test

import (
	"errors"
	"testing"
	"time"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/backend/memory"
)

// A request that arrives after its release takes nothing: nobody would free the lock.
func TestLateRequestIsRefused(t *testing.T) {
	b := memory.NewStore(anylock.WakeQueue).Client()
	defer b.Close()
	r := anylock.Request{Name: "x", ID: "LATE", TTL: time.Minute}
	if err := b.Release(t.Context(), []anylock.Grant{{Name: r.Name, ID: r.ID}})[0]; !errors.Is(err, anylock.ErrLost) {
		t.Errorf("released what was never granted: %v", err)
	}
	if _, err := b.Acquire(t.Context(), r); !errors.Is(err, anylock.ErrLost) {
		t.Errorf("acquired after its release: %v", err)
	}
	r.ID = "ANOTHER"
	if _, err := b.Acquire(t.Context(), r); err != nil {
		t.Error(err)
	}
}
