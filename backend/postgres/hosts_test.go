package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/backend/postgres"
	"github.com/anylock/anylock/conformance/containers"
)

// One of several hosts hangs, and another was promoted: running clients and new ones are back within two request timeouts.
func TestSeveralHosts(t *testing.T) {
	primary := containers.Postgres(t)
	standby := containers.PostgresStandby(t, primary)
	url := urlAt(primary, primary.Addr()+","+standby.Addr(), "target_session_attrs=read-write")
	modes := []string{"lease", "rowlock", "advisory"}
	running := map[string]*anylock.Locker{}
	for _, mode := range modes {
		running[mode] = locker(t, url+"&mode="+mode+"&table="+mode, anylock.WithLogger(nil))
		for i := range 4 { // several connections, all of them to the primary
			lease := must(running[mode].Acquire(ctx10(t), fmt.Sprint(mode, i)))(t)
			if i > 1 {
				defer func() { _ = lease.Release(context.Background()) }()
			} else {
				must(0, lease.Release(ctx10(t)))(t)
			}
		}
	}
	follower := must(pgx.Connect(ctx10(t), urlOf(standby)))(t)
	defer func() { _ = follower.Close(context.Background()) }()
	eventually(t, 20*time.Second, "the standby has all", func() bool {
		var there bool
		err := follower.QueryRow(ctx10(t), "SELECT count(*) = 12 FROM (TABLE lease UNION ALL TABLE rowlock UNION ALL TABLE advisory) AS all_of_them "+
			"WHERE name ~ '^(lease|rowlock|advisory)[0-3]$'").Scan(&there)
		return err == nil && there
	})
	if err := primary.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	must(follower.Exec(ctx10(t), "SELECT pg_promote()"))(t)

	back := func(mode, what string, l *anylock.Locker) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*anylock.DefaultRequestTimeout)
		defer cancel()
		for {
			lease, err := l.Acquire(ctx, mode+what)
			if err == nil {
				must(0, lease.Release(ctx10(t)))(t)
				return
			}
			if !errors.Is(err, anylock.ErrUnavailable) || ctx.Err() != nil {
				t.Errorf("%s, a %s client, two request timeouts after the promotion: %v", mode, what, err)
				return
			}
		}
	}
	for _, mode := range modes {
		back(mode, "running", running[mode])
		back(mode, "new", locker(t, url+"&mode="+mode+"&table="+mode, anylock.WithLogger(nil)))
	}
}

// Behind a pooler, where the default isolation level is not READ COMMITTED, a statement and its transaction are one round trip:
// nobody who is cut off leaves the pooler's session with a locked row.
func TestStrictDefaultsBehindPgBouncer(t *testing.T) {
	s := containers.Postgres(t, containers.Args("-c", "default_transaction_isolation=serializable"))
	bouncer := containers.PgBouncer(t, s, "default_pool_size = 4")
	network := containers.NewNetwork(t)
	b := open(t, urlAt(bouncer, network.Addr(t, bouncer.Addr()), "pool_max_conns=1", "listen=false"))
	other := open(t, urlOf(bouncer, "listen=false"))
	postgres.Isolate(b) // as the first statement that fails for its isolation level would
	postgres.Isolate(other)
	for range 3 {
		before := network.RoundTrips()
		g := must(b.Acquire(ctx10(t), request("n")))(t)
		if n := network.RoundTrips() - before; n != 1 {
			t.Errorf("acquire takes %d round trips", n)
		}
		if r := b.Renew(ctx10(t), []anylock.Grant{g})[0]; r.Err != nil {
			t.Error(r.Err)
		}
		if _, err := other.Acquire(ctx10(t), request("n")); !errors.Is(err, anylock.ErrHeld) {
			t.Errorf("a held lock: %v", err)
		}
		if err := b.Release(ctx10(t), []anylock.Grant{g})[0]; err != nil {
			t.Error(err)
		}
	}
}
