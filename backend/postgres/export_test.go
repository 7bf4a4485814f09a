package postgres

import "context"

// Sweep sweeps now.
func Sweep(b *Backend, ctx context.Context) (int64, error) {
	switch m := b.mode.(type) {
	case *leases:
		return m.sweeper.sweep(ctx)
	case *rowLocks:
		return m.sweeper.sweep(ctx)
	}
	return 0, nil
}
