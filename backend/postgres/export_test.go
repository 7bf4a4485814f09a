package postgres

import "context"

// Sweep sweeps now.
func Sweep(ctx context.Context, b *Backend) (int64, error) {
	switch m := b.mode.(type) {
	case *leases:
		return m.sweeper.sweep(ctx)
	case *rowLocks:
		return m.sweeper.sweep(ctx)
	}
	return 0, nil
}
