package postgres

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/backend/internal/gate"
	"github.com/anylock/anylock/backend/internal/yield"
)

//go:embed sql/acquire.sql
var acquireSQL string

//go:embed sql/renew.sql
var renewSQL string

//go:embed sql/release.sql
var releaseSQL string

//go:embed sql/refuse.sql
var refuseSQL string

const (
	leaseMinTTL = 10 * time.Millisecond
	leaseMaxTTL = 10 * 365 * 24 * time.Hour
	leaseBatch  = 1000

	// attempts is how often an acquire asks while it does not find out who has the lock.
	attempts = 4

	// releaseAsks is for how many names a release finds out whether anybody waits.
	releaseAsks = 50

	// remembers is how many of the IDs that ended last a lock knows, so that it refuses their requests.
	remembers = 4

	// standBack is in which time those who wait hear of a release and make their attempt.
	standBack = 3 * time.Millisecond
)

// leases keeps a lock as a row with a version and an expiry, on the server's clock.
type leases struct {
	*database
	sweeper  sweeper
	listener *listener // nil: waiters poll
	yielder  yield.Yielder

	acquireSQL, renewSQL, releaseSQL, refuseSQL string
}

func newLeases(d *database, connect connectFunc) *leases {
	l := &leases{
		database:   d,
		sweeper:    sweeper{database: d, sql: d.config.fill(sweepSQL)},
		acquireSQL: d.config.fill(acquireSQL), renewSQL: d.config.fill(renewSQL),
		releaseSQL: d.config.fill(releaseSQL), refuseSQL: d.config.fill(refuseSQL),
	}
	if d.config.listen {
		l.listener = newListener(connect)
	}
	return l
}

// introduce tries out an address that was given for LISTEN: without it waiters would poll, and nobody would know.
func (l *leases) introduce(ctx context.Context) error {
	if l.listener == nil || l.config.listenAt == "" {
		return nil
	}
	conn, err := l.listener.connect(ctx)
	if err != nil {
		return fmt.Errorf("listen=%s: %w", l.config.listenAt, classify(err))
	}
	closeSoon(conn)
	return nil
}

func (l *leases) describe() anylock.Description {
	wake := anylock.WakeNotify
	if l.listener == nil {
		wake = anylock.WakePoll
	}
	return anylock.Description{
		Name: "postgres",
		Guarantees: anylock.Guarantees{
			Exclusion: anylock.ScopeNode,
			Fencing:   anylock.ScopeNode,
			Wake:      wake,
			Clock:     anylock.ClockStore,
			HoldCost:  anylock.CostRecord,
			Survives:  anylock.HolderCrash | anylock.HolderPartition | anylock.StoreRestart | oneServer,
		},
		MinTTL: leaseMinTTL, MaxTTL: leaseMaxTTL, MaxBatch: leaseBatch,
		MaxRequests: int(l.pool.Config().MaxConns),
	}
}

// oneServer are faults of others than the one server.
const oneServer = anylock.MinorityLoss | anylock.MajorityLoss

func (l *leases) acquire(ctx context.Context, req anylock.Request) (anylock.Grant, error) {
	ttl := wholeMicroseconds(req.TTL)
	name := l.config.prefix + req.Name
	l.yielder.Yield(ctx, req.Name, standBack)
	var before rowState
	for try := range attempts {
		if try == attempts-1 { // somebody may have been quicker so often; or nobody can change the row
			var err error
			if before, err = l.rowState(ctx, name); err != nil {
				return anylock.Grant{}, err
			}
		}
		var from time.Time
		var token, remaining int64
		var holder string
		answered, over := false, false
		err := l.run(ctx, statement{
			sql:   l.acquireSQL,
			args:  []any{name, req.ID, ttl.Microseconds(), req.Holder, int64(max(req.MinToken, 0))},
			begin: func() { from = time.Now() },
			each: func(row pgx.CollectableRow) error {
				answered = true
				return row.Scan(&token, &holder, &remaining, &over)
			},
			repeatable: true,
		})
		switch {
		case err != nil:
			return anylock.Grant{}, err
		case token > 0:
			return anylock.Grant{Name: req.Name, ID: req.ID, Token: anylock.Token(token), TTL: ttl, From: from}, nil
		case over:
			return anylock.Grant{}, gate.ErrTooLate
		case answered && remaining > 0:
			return anylock.Grant{}, &anylock.HeldError{Holder: holder, RetryAfter: time.Duration(remaining) * time.Microsecond}
		}
		// Somebody else was quicker by so little that the statement does not know whom; ask again.
	}
	after, err := l.rowState(ctx, name)
	if err != nil {
		return anylock.Grant{}, err
	}
	if after == before && after.guarded { // an attempt was made in between, and has changed nothing
		return anylock.Grant{}, anylock.Invalidf("nobody has the lock, and yet its row cannot be changed: the table %s has row level "+
			"security, rules or triggers that hide rows from this user's UPDATE or INSERT; give it policies for SELECT, INSERT, UPDATE "+
			"and DELETE, or take them off", l.config.fill("{locks}"))
	}
	return anylock.Grant{}, new(anylock.HeldError)
}

// rowState tells whether a row was changed, and whether there is something in the table that lets statements change nothing
// without an error: then a lock that nobody has would look held for ever.
type rowState struct {
	version string // of the row in the server; empty: there is no row
	guarded bool   // by row level security, rules or triggers
}

func (l *leases) rowState(ctx context.Context, name string) (state rowState, err error) {
	err = l.run(ctx, statement{
		sql: l.config.fill(`SELECT coalesce((SELECT xmin::text || ctid::text FROM {locks} WHERE name = $2::text), ''),
			row_security_active(c.oid) OR c.relhasrules OR
				EXISTS (SELECT FROM pg_trigger WHERE tgrelid = c.oid AND NOT tgisinternal AND tgenabled <> 'D')
			FROM pg_class AS c WHERE c.oid = to_regclass($1::text)`),
		args:       []any{l.config.fill("{locks}"), name},
		each:       func(row pgx.CollectableRow) error { return row.Scan(&state.version, &state.guarded) },
		repeatable: true,
	})
	return state, err
}

func (l *leases) renew(ctx context.Context, grants []anylock.Grant) []anylock.Renewal {
	renewals := make([]anylock.Renewal, len(grants))
	names, ids, ttls := make([]string, len(grants)), make([]string, len(grants)), make([]int64, len(grants))
	for i, g := range grants {
		ttl := wholeMicroseconds(g.TTL)
		names[i], ids[i], ttls[i] = l.config.prefix+g.Name, g.ID, ttl.Microseconds()
		renewals[i] = anylock.Renewal{TTL: ttl, Err: anylock.ErrLost}
	}
	var from time.Time
	err := l.run(ctx, statement{
		sql:   l.renewSQL,
		args:  []any{names, ids, ttls},
		begin: func() { from = time.Now() },
		each: func(row pgx.CollectableRow) error {
			var i int
			var extended bool
			if err := scanPosition(row, len(grants), &i, &extended); err != nil {
				return err
			}
			renewals[i-1].Err = nil
			if !extended {
				renewals[i-1].Err = errRowLocked
			}
			return nil
		},
		repeatable: true,
	})
	for i := range renewals {
		renewals[i].From = from
		if err != nil {
			renewals[i].Err = err
		}
	}
	return renewals
}

var errRowLocked = anylock.Unavailable(errors.New("somebody else has locked the row of the lock, in psql or by a statement that takes long"))

func (l *leases) release(ctx context.Context, grants []anylock.Grant) []error {
	_ = l.resolve(ctx) // without it nobody is woken, and they look again by themselves
	results := make([]error, len(grants))
	names, ids, keys := make([]string, len(grants)), make([]string, len(grants)), make([]int64, len(grants))
	for i, g := range grants {
		names[i], ids[i] = l.config.prefix+g.Name, g.ID
		keys[i] = l.wakeKey(g.Name)
		results[i] = anylock.ErrLost
	}
	release := statement{
		sql:  l.releaseSQL,
		args: []any{names, ids, keys, releaseAsks, remembers * len(ids[0])},
		each: func(row pgx.CollectableRow) error {
			var i int
			var notified bool
			if err := scanPosition(row, len(grants), &i, &notified); err != nil {
				return err
			}
			results[i-1] = nil
			if notified {
				l.yielder.Released(grants[i-1].Name)
			}
			return nil
		},
	}
	err := l.run(ctx, release)
	if sqlState(err) == outOfMemory { // no room for another advisory lock: notify without asking
		release.args[3] = 0
		err = l.run(ctx, release)
	}
	if err != nil {
		for i := range results {
			results[i] = err
		}
		return results
	}
	l.refuse(ctx, grants, results)
	l.sweeper.sometimes()
	return results
}

// refuse sees to it that what was released without being there is not granted when it arrives late. To fail is no matter:
// that lock would stay until it expires.
func (l *leases) refuse(ctx context.Context, grants []anylock.Grant, results []error) {
	var names, ids []string
	for i, err := range results {
		if err != nil {
			names, ids = append(names, l.config.prefix+grants[i].Name), append(ids, grants[i].ID)
		}
	}
	if len(names) > 0 {
		_ = l.run(ctx, statement{sql: l.refuseSQL, args: []any{names, ids, remembers * len(ids[0])}, repeatable: true})
	}
}

// scanPosition reads a row that begins with a position among n, counted from 1.
func scanPosition(row pgx.CollectableRow, n int, i *int, others ...any) error {
	if err := row.Scan(append([]any{i}, others...)...); err != nil {
		return err
	}
	if *i < 1 || *i > n {
		return errors.New("the answer of the statement is not understood")
	}
	return nil
}

func (l *leases) watch(ctx context.Context, name string) (<-chan struct{}, error) {
	if l.listener == nil {
		return nil, nil
	}
	if err := l.resolve(ctx); err != nil {
		return nil, err
	}
	return l.listener.watch(ctx, l.wakeKey(name))
}

// wakeKey is what the waiters for a name listen for.
func (l *leases) wakeKey(name string) int64 {
	schema := l.config.schema
	if s := l.inSchema.Load(); s != nil {
		schema = *s
	}
	return hash64("anylock", "wake", schema, l.config.table, l.config.prefix+name)
}

func (l *leases) close() {
	if l.listener != nil {
		l.listener.close()
	}
	l.sweeper.wait()
	l.database.close()
}

// wholeMicroseconds rounds up to what the server can count.
func wholeMicroseconds(d time.Duration) time.Duration {
	return (d + time.Microsecond - 1).Truncate(time.Microsecond)
}
