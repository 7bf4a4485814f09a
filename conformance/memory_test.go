package conformance

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/backend/memory"
)

// memoryHarness offers all faults that can be played without a server. wrap, if not nil, changes each client's backend.
func memoryHarness(wake anylock.Wake, deaf bool, wrap func(anylock.Backend) anylock.Backend) Harness {
	store := memory.NewStore(wake)
	open := func(context.Context) (Client, error) {
		c := Wired(store.Client(), deaf)
		if wrap != nil {
			c.Backend = wrap(c.Backend)
		}
		return c, nil
	}
	return Harness{
		Open:      open,
		TTL:       150 * time.Millisecond,
		TellsLoss: wake == anylock.WakeQueue,
		Steal: func(_ context.Context, name string) error {
			if !store.Steal(name) {
				return fmt.Errorf("%q is not held", name)
			}
			return nil
		},
		Leftovers: func(context.Context) ([]string, error) { return store.Held(), nil },
		Foreign: func(ctx context.Context, name string) (func(context.Context) error, error) {
			b := store.Client()
			g, err := b.Acquire(ctx, anylock.Request{Name: name, ID: rand.Text(), TTL: time.Minute})
			return func(ctx context.Context) error { return b.Release(ctx, []anylock.Grant{g})[0] }, err
		},
	}
}

func TestMemory(t *testing.T) {
	for _, wake := range []anylock.Wake{anylock.WakeQueue, anylock.WakeNotify, anylock.WakePoll} {
		t.Run(wake.String(), func(t *testing.T) {
			Run(t, memoryHarness(wake, wake == anylock.WakeNotify, nil))
		})
	}
}
