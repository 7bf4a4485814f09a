package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/backend/internal/gate"
)

// Backend keeps locks in Postgres.
type Backend struct {
	mode  mode
	gate  gate.Gate
	claim claim
	data  *database
}

var _ anylock.Backend = (*Backend)(nil)

// mode is one way to keep locks. Its methods are those of [anylock.Backend], without the checks that all share.
type mode interface {
	describe() anylock.Description
	introduce(context.Context) error // connects once
	acquire(context.Context, anylock.Request) (anylock.Grant, error)
	watch(context.Context, string) (<-chan struct{}, error)
	renew(context.Context, []anylock.Grant) []anylock.Renewal
	release(context.Context, []anylock.Grant) []error
	close()
}

// New makes a backend over a pool that the caller has, and goes on to own. There is no I/O. In mode lease the statements
// use the pool. The other modes, and LISTEN, open connections of their own with the pool's settings, so that an application
// that has taken all of the pool's connections can still take and give back locks.
func New(pool *pgxpool.Pool, opts ...Option) (*Backend, error) {
	if pool == nil {
		return nil, anylock.Invalidf("the pool is nil")
	}
	c, err := configure(defaults(), opts)
	if err != nil {
		return nil, err
	}
	settings := pool.Config()
	if c.mode == Lease {
		return newBackend(newDatabase(pool, false, c), settings)
	}
	own, err := ownPool(settings)
	if err != nil {
		return nil, err
	}
	return newBackend(newDatabase(own, true, c), settings)
}

// newBackend owns d, also when it fails.
func newBackend(d *database, settings *pgxpool.Config) (*Backend, error) {
	at := ""
	if d.config.mode == Lease {
		at = d.config.listenAt
	}
	connect, err := sessions(settings, at)
	if err != nil {
		d.close()
		return nil, err
	}
	b := &Backend{data: d}
	switch d.config.mode {
	case Lease:
		b.mode = newLeases(d, connect)
	case RowLock:
		b.mode = newRowLocks(d, connect)
	case Advisory:
		b.mode = newAdvisoryLocks(d, connect)
	}
	return b, nil
}

// Describe says what Postgres promises in this configuration.
func (b *Backend) Describe() anylock.Description { return b.mode.describe() }

// Acquire makes one attempt, see the package documentation for what it costs.
func (b *Backend) Acquire(ctx context.Context, req anylock.Request) (anylock.Grant, error) {
	if err := b.gate.Enter(ctx); err != nil {
		return anylock.Grant{}, err
	}
	if d := b.Describe(); req.TTL < d.MinTTL || req.TTL > d.MaxTTL {
		return anylock.Grant{}, anylock.Invalidf("a TTL of %v is not between %v and %v", req.TTL, d.MinTTL, d.MaxTTL)
	}
	if err := b.claim.check(ctx, b.data); err != nil {
		return anylock.Grant{}, b.classify(err)
	}
	grant, err := b.mode.acquire(ctx, req)
	return grant, b.classify(err)
}

// Watch wakes those who wait for a name.
func (b *Backend) Watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if err := b.gate.Enter(ctx); err != nil {
		return nil, err
	}
	wake, err := b.mode.watch(ctx, name)
	return wake, b.classify(err)
}

// Renew extends grants.
func (b *Backend) Renew(ctx context.Context, grants []anylock.Grant) []anylock.Renewal {
	if err := b.gate.Enter(ctx); err != nil {
		return slices.Repeat([]anylock.Renewal{{Err: err}}, len(grants))
	}
	if len(grants) == 0 {
		return nil
	}
	renewals := b.mode.renew(ctx, grants)
	for i := range renewals {
		renewals[i].Err = b.classify(renewals[i].Err)
	}
	return renewals
}

// Release ends grants.
func (b *Backend) Release(ctx context.Context, grants []anylock.Grant) []error {
	if err := b.gate.Enter(ctx); err != nil {
		return slices.Repeat([]error{err}, len(grants))
	}
	if len(grants) == 0 {
		return nil
	}
	results := b.mode.release(ctx, grants)
	for i := range results {
		results[i] = b.classify(results[i])
	}
	return results
}

// Close ends the connections that the backend has opened itself. Calls under way then return.
func (b *Backend) Close() error {
	if b.gate.Close() {
		b.mode.close()
	}
	return nil
}

func (b *Backend) classify(err error) error { return b.gate.Explain(classify(err)) }
