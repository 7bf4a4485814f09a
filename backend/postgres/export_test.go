package postgres

import "context"

// Sweep sweeps now.
func Sweep(ctx context.Context, b *Backend) (int64, error) {
	switch m := b.mode.(type) {
	case *leases:
		return m.sweeper.sweep(ctx)
	case *rowLocks:
		return m.sweeper.sweep(ctx)
	case *advisoryLocks:
		return m.sweeper.sweep(ctx)
	}
	return 0, nil
}

// NoteAgain makes the next renewals note in the table that their locks are held, as if the time for it had come.
func NoteAgain(b *Backend) {
	switch m := b.mode.(type) {
	case *rowLocks:
		for _, h := range m.holds.byID {
			h.noted.Store(0)
		}
	case *advisoryLocks:
		for _, n := range m.byID {
			n.noted.Store(0)
		}
	}
}

// Noted waits until everything is noted that should be.
func Noted(b *Backend) {
	switch m := b.mode.(type) {
	case *rowLocks:
		m.sweeper.running.Wait()
	case *advisoryLocks:
		m.sweeper.running.Wait()
	}
}

// Isolate makes a backend of mode lease ask for READ COMMITTED with each statement.
func Isolate(b *Backend) { b.mode.(*leases).isolated.Store(true) }

// SweepInBackground starts a sweep of mode lease as releases do now and then.
func SweepInBackground(b *Backend) {
	s := &b.mode.(*leases).sweeper
	s.running.Go(func() { _, _ = s.sweep(s.life) })
}
