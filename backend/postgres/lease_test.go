package postgres_test

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/backend/postgres"
	"github.com/anylock/anylock/conformance/containers"
)

func request(name string) anylock.Request {
	return anylock.Request{Name: name, ID: cryptorand.Text(), TTL: 10 * time.Second}
}

func TestLeaseBehindPgBouncer(t *testing.T) {
	s := containers.Postgres(t)
	bouncer := containers.PgBouncer(t, s, "default_pool_size = 2")
	url := urlOf(bouncer)
	var counter int
	var running sync.WaitGroup
	for range 4 {
		l := locker(t, url)
		running.Go(func() {
			for range 50 {
				err := l.Do(context.Background(), "n", func(context.Context, *anylock.Lease) error {
					counter++
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	if counter != 200 {
		t.Errorf("%d of 200", counter)
	}
	b := open(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if wake, err := b.Watch(ctx, "n"); wake != nil || err != nil {
		t.Errorf("Watch through the pooler: %v, %v; want nil, nil: it cannot tell", wake != nil, err)
	}
	direct := open(t, urlOf(bouncer, "listen="+s.Addr()))
	if wake, err := direct.Watch(ctx, "n"); wake == nil || err != nil {
		t.Errorf("Watch at the server itself: %v, %v", wake != nil, err)
	}
}

func TestPoolThroughPgBouncer(t *testing.T) {
	s := containers.Postgres(t)
	bouncer := containers.PgBouncer(t, s, "default_pool_size = 2")
	pool, err := pgxpool.New(context.Background(), urlOf(bouncer))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	b, err := postgres.New(pool) // whose pool prepares statements, which this pooler does not keep
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var running sync.WaitGroup
	for i := range 8 {
		running.Go(func() {
			for range 20 {
				g, err := b.Acquire(ctx10(t), request(fmt.Sprint("n", i)))
				if err != nil {
					t.Error(err)
					return
				}
				if err := b.Release(ctx10(t), []anylock.Grant{g})[0]; err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
}

func TestLeaseUnderStrictDefaults(t *testing.T) {
	s := server(t)
	for _, level := range []string{"serializable", "repeatable read"} {
		t.Run(level, func(t *testing.T) {
			schema := freshSchema(t, s)
			var counter [51]int
			var running sync.WaitGroup
			for range 4 {
				l := locker(t, urlOf(s, schema, "options=-c%20default_transaction_isolation="+strings.ReplaceAll(level, " ", `%5C%20`)))
				running.Go(func() {
					for i := range 150 {
						name := i % 51
						err := l.Do(context.Background(), fmt.Sprint(name), func(context.Context, *anylock.Lease) error {
							counter[name]++
							return nil
						})
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
			running.Wait()
			total := 0
			for _, n := range counter {
				total += n
			}
			if total != 600 {
				t.Errorf("%d of 600", total)
			}
		})
	}
}

func TestReadOnlyServer(t *testing.T) {
	s := server(t)
	schema := freshSchema(t, s)
	open(t, urlOf(s, schema))
	_, err := postgres.Open(ctx10(t), urlOf(s, schema, "options=-c%20default_transaction_read_only=on"))
	if !errors.Is(err, anylock.ErrUnavailable) || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("Open: %v", err)
	}

	db := admin(t, s)
	role := "reader_" + strings.ToLower(cryptorand.Text())
	db.exec("CREATE ROLE " + role + " SUPERUSER LOGIN PASSWORD 'secret'")
	defer db.exec("DROP ROLE " + role)
	url := strings.Replace(urlOf(s, schema, "pool_max_conns=1"), s.Username+":"+s.Password, role+":secret", 1)
	b := open(t, url)
	g := must(b.Acquire(ctx10(t), request("held")))(t)
	db.exec("ALTER ROLE " + role + " SET default_transaction_read_only = on")
	db.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", role)
	if err := b.Renew(ctx10(t), []anylock.Grant{g})[0].Err; !errors.Is(err, anylock.ErrUnavailable) {
		t.Errorf("Renew: %v", err)
	}
	if _, err := b.Acquire(ctx10(t), request("free")); !errors.Is(err, anylock.ErrUnavailable) || errors.Is(err, anylock.ErrHeld) {
		t.Errorf("Acquire: %v", err)
	}
}

func TestRoundTrips(t *testing.T) {
	s := server(t)
	network := containers.NewNetwork(t)
	b := open(t, urlAt(s, network.Addr(t, s.Addr()), freshSchema(t, s), "pool_max_conns=1"))
	warm := func() {
		g := must(b.Acquire(ctx10(t), request("warm")))(t)
		b.Renew(ctx10(t), []anylock.Grant{g})
		_, _ = b.Acquire(ctx10(t), request("warm"))
		b.Release(ctx10(t), []anylock.Grant{g})
	}
	warm()
	warm()
	count := func(what string, f func()) {
		t.Helper()
		before := network.RoundTrips()
		f()
		if n := network.RoundTrips() - before; n != 1 {
			t.Errorf("%s takes %d round trips", what, n)
		}
	}
	for _, name := range []string{"warm", "a new name"} {
		var g anylock.Grant
		count("acquire", func() { g = must(b.Acquire(ctx10(t), request(name)))(t) })
		count("a refused acquire", func() {
			if _, err := b.Acquire(ctx10(t), request(name)); !errors.Is(err, anylock.ErrHeld) {
				t.Error(err)
			}
		})
		count("renew", func() { b.Renew(ctx10(t), []anylock.Grant{g}) })
		count("release", func() { b.Release(ctx10(t), []anylock.Grant{g}) })
	}
}

func TestWaitingWritesNothing(t *testing.T) {
	s := containers.Postgres(t, containers.Args("-c", "autovacuum=off", "-c", "checkpoint_timeout=1h", "-c", "bgwriter_lru_maxpages=0"))
	b := open(t, urlOf(s))
	other := open(t, urlOf(s))
	g := must(b.Acquire(ctx10(t), request("n")))(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	refuse := func() {
		for range 200 {
			var held *anylock.HeldError
			if _, err := other.Acquire(ctx, request("n")); !errors.As(err, &held) || held.RetryAfter <= 0 {
				t.Fatal(err)
			}
		}
	}
	refuse() // catalogue pages may be written by the first look at them
	must(other.Watch(ctx, "n"))(t)
	db := admin(t, s)
	const position = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"
	const xid = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
	value[int64](db, position)
	lsn, xmax := value[int64](db, position), value[int64](db, xid)
	refuse()
	if n := value[int64](db, xid) - xmax; n != 0 {
		t.Errorf("200 refused attempts took %d transaction IDs", n)
	}
	if n := value[int64](db, position) - lsn; n > 200 { // the server's own: snapshots of running transactions
		t.Errorf("200 refused attempts wrote %d bytes of WAL", n)
	}
	b.Release(ctx10(t), []anylock.Grant{g})
}

func TestNotifiesOnlyWaiters(t *testing.T) {
	s := server(t)
	schema := freshSchema(t, s)
	a, b := open(t, urlOf(s, schema)), open(t, urlOf(s, schema))
	listener := must(pgxpool.New(context.Background(), urlOf(s)))(t)
	defer listener.Close()
	conn := must(listener.Acquire(ctx10(t)))(t)
	defer conn.Release()
	must(conn.Exec(ctx10(t), "LISTEN anylock"))(t)
	notified := func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		_, err := conn.Conn().WaitForNotification(ctx)
		return err == nil
	}
	hold := func() {
		g := must(a.Acquire(ctx10(t), request("n")))(t)
		if err := a.Release(ctx10(t), []anylock.Grant{g})[0]; err != nil {
			t.Fatal(err)
		}
	}
	hold()
	if notified() {
		t.Error("a notification that nobody waits for")
	}
	ctx, cancel := context.WithCancel(t.Context())
	wake := must(b.Watch(ctx, "n"))(t)
	hold()
	if !notified() {
		t.Error("no notification although somebody waits")
	}
	select {
	case <-wake:
	case <-time.After(5 * time.Second):
		t.Error("the waiter was not woken")
	}
	cancel()
	eventually(t, 10*time.Second, "the end of notifications after the last waiter has left", func() bool {
		hold()
		return !notified()
	})
}

func TestHandOver(t *testing.T) {
	s := server(t)
	schema := freshSchema(t, s)
	a, b := locker(t, urlOf(s, schema)), locker(t, urlOf(s, schema))
	for range 5 {
		l := must(a.Acquire(ctx10(t), "n", anylock.WithTTL(time.Minute)))(t)
		got := make(chan time.Time, 1)
		go func() {
			next, err := b.Acquire(ctx10(t), "n")
			got <- time.Now()
			if err != nil {
				t.Error(err)
				return
			}
			_ = next.Release(context.Background())
		}()
		time.Sleep(100 * time.Millisecond)
		start := time.Now()
		must(0, l.Release(ctx10(t)))(t)
		if took := (<-got).Sub(start); took > 200*time.Millisecond {
			t.Errorf("a hand-over took %v", took)
		}
	}
}

func TestManyRenewals(t *testing.T) {
	s := server(t)
	schema := freshSchema(t, s)
	b := open(t, urlOf(s, schema))
	grants := make([]anylock.Grant, 10000)
	db := admin(t, s)
	table := strings.TrimPrefix(schema, "schema=") + ".anylock"
	db.exec(`INSERT INTO ` + table + ` SELECT 'n'||i, 1, 'ID'||i, '', clock_timestamp() + interval '1 minute'
		FROM generate_series(0, 9999) AS i`)
	for i := range grants {
		grants[i] = anylock.Grant{Name: fmt.Sprint("n", i), ID: fmt.Sprint("ID", i), TTL: time.Minute}
	}
	grants[17].ID = "ANOTHER"
	start := time.Now()
	statements := 0
	most := b.Describe().MaxBatch
	for at := 0; at < len(grants); at += most {
		statements++
		for i, r := range b.Renew(ctx10(t), grants[at:at+most]) {
			if lost := errors.Is(r.Err, anylock.ErrLost); lost != (at+i == 17) {
				t.Fatalf("grant %d: %v", at+i, r.Err)
			}
		}
	}
	t.Logf("10,000 leases renewed by %d statements in %v", statements, time.Since(start))
	if statements >= 40 {
		t.Errorf("%d statements", statements)
	}
	for i, err := range b.Release(ctx10(t), grants[:1000]) {
		if lost := errors.Is(err, anylock.ErrLost); lost != (i == 17) {
			t.Fatalf("release %d: %v", i, err)
		}
	}
}

func TestSweep(t *testing.T) {
	s := server(t)
	schema := freshSchema(t, s)
	b := open(t, urlOf(s, schema))
	db := admin(t, s)
	table := strings.TrimPrefix(schema, "schema=") + ".anylock"
	g := must(b.Acquire(ctx10(t), request("old")))(t)
	b.Release(ctx10(t), []anylock.Grant{g})
	must(b.Acquire(ctx10(t), request("held")))(t)
	db.exec(`INSERT INTO ` + table + ` SELECT 'x'||i, 1, NULL, '', clock_timestamp() - interval '2 hours' FROM generate_series(1, 2500) AS i`)
	db.exec(`INSERT INTO ` + table + ` VALUES ('great', 9000000000000000000, NULL, '', clock_timestamp() - interval '2 hours')`)
	db.exec(`UPDATE ` + table + ` SET expires_at = clock_timestamp() - interval '2 hours', version = version - 7200000000 WHERE name = 'old'`)
	if n := must(postgres.Sweep(ctx10(t), b))(t); n != 2501 {
		t.Errorf("%d rows were swept", n)
	}
	next := must(b.Acquire(ctx10(t), request("old")))(t)
	if next.Token <= g.Token {
		t.Errorf("token %d after %d, which was swept", next.Token, g.Token)
	}
	if g := must(b.Acquire(ctx10(t), request("great")))(t); g.Token != 9000000000000000001 {
		t.Errorf("token %d after one that is beyond the clock", g.Token)
	}
}

func TestSynchronousCommitOff(t *testing.T) {
	s := containers.Postgres(t, containers.Args("-c", "synchronous_commit=off", "-c", "wal_writer_delay=10s"))
	b := open(t, urlOf(s))
	var last anylock.Token
	for range 5 {
		g := must(b.Acquire(ctx10(t), request("n")))(t)
		if g.Token <= last {
			t.Fatalf("token %d after %d", g.Token, last)
		}
		last = g.Token
		must(0, s.Restart(context.Background()))(t)
		eventually(t, 20*time.Second, "the release", func() bool {
			err := b.Release(ctx10(t), []anylock.Grant{g})[0]
			if errors.Is(err, anylock.ErrLost) {
				t.Fatal("the grant did not survive a crash")
			}
			return err == nil
		})
	}
}

func TestSweepRows(t *testing.T) {
	s := server(t)
	schema := freshSchema(t, s)
	b := open(t, urlOf(s, schema, "mode=rowlock"))
	db := admin(t, s)
	name := strings.TrimPrefix(schema, "schema=")
	take := func(name string) anylock.Grant { return must(b.Acquire(ctx10(t), request(name)))(t) }
	old := take("old")
	for _, g := range []anylock.Grant{old, take("held")} {
		must(0, b.Release(ctx10(t), []anylock.Grant{g})[0])(t)
	}
	db.exec(`INSERT INTO ` + name + `.anylock_rows SELECT 'x'||i FROM generate_series(1, 1500) AS i`)
	db.exec(`UPDATE ` + name + `.anylock_rows SET created_at = clock_timestamp() - interval '2 hours'`)
	held := take("held")
	db.exec(`UPDATE ` + name + `.anylock SET expires_at = clock_timestamp() - interval '2 hours' WHERE name <> ''`)
	db.exec(`UPDATE ` + name + `.anylock SET version = version - 7200000000 WHERE name = 'old'`)
	postgres.NoteAgain(b)
	must(0, b.Renew(ctx10(t), []anylock.Grant{held})[0].Err)(t)
	postgres.Noted(b)
	if n := must(postgres.Sweep(ctx10(t), b))(t); n != 1501+1 { // the rows but one, and one counter
		t.Errorf("%d rows were swept", n)
	}
	if left := value[string](db, "SELECT string_agg(name, ' ') FROM "+name+".anylock_rows"); left != "held" {
		t.Errorf("left are %s", left)
	}
	must(0, b.Release(ctx10(t), []anylock.Grant{held})[0])(t)
	if next := take("old"); next.Token <= old.Token {
		t.Errorf("token %d after %d, which was swept", next.Token, old.Token)
	}
	if next := take("held"); next.Token <= held.Token {
		t.Errorf("token %d after %d, which was swept", next.Token, held.Token)
	}
}

// The counter of a lock stays while it is held, however long that is. With MinToken it may be far behind the server's time.
func TestCountersOfHeldLocksStay(t *testing.T) {
	s := server(t)
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			schema := freshSchema(t, s)
			b := open(t, urlOf(s, schema, "mode="+mode))
			db := admin(t, s)
			table := strings.TrimPrefix(schema, "schema=") + ".anylock"
			req := request("n")
			req.MinToken = 1000
			g := must(b.Acquire(ctx10(t), req))(t)
			db.exec("UPDATE " + table + " SET expires_at = expires_at - interval '2 hours' WHERE id IS NULL") // granted so long ago
			postgres.NoteAgain(b)
			must(0, b.Renew(ctx10(t), []anylock.Grant{g})[0].Err)(t)
			postgres.Noted(b)
			must(postgres.Sweep(ctx10(t), b))(t)
			must(0, b.Release(ctx10(t), []anylock.Grant{g})[0])(t)
			must(postgres.Sweep(ctx10(t), b))(t) // it was in use until now
			req = request("n")
			req.MinToken = 5
			if next := must(b.Acquire(ctx10(t), req))(t); next.Token <= g.Token {
				t.Errorf("token %d after %d of a lock that was held", next.Token, g.Token)
			}

			req = request("not renewed")
			req.TTL = 2 * time.Hour
			must(b.Acquire(ctx10(t), req))(t)
			if left := value[time.Duration](db, "SELECT expires_at - clock_timestamp() FROM "+table+" WHERE name = 'not renewed'"); left < req.TTL-time.Minute {
				t.Errorf("a lock that may be held for %v without a renewal is in use for %v", req.TTL, left)
			}
		})
	}
}

// The server has one table for the locks of all its sessions, and a few thousand places in it.
func TestFullLockTable(t *testing.T) {
	s := containers.Postgres(t, containers.Args("-c", "max_locks_per_transaction=10", "-c", "max_connections=30"))
	a, b := open(t, urlOf(s)), open(t, urlOf(s, "application_name=listener"))
	var grants []anylock.Grant
	for i := range 10 {
		grants = append(grants, must(a.Acquire(ctx10(t), request(fmt.Sprint("n", i))))(t))
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	wake := must(b.Watch(ctx, "w"))(t)
	db := must(admin(t, s).Acquire(ctx))(t)
	defer db.Release()
	defer func() { _ = db.Conn().Close(ctx) }() // not into the pool: it has the locks
	free := 0                                   // one place for each transaction that writes is left
	fill := func(before string) {
		_, err := db.Exec(ctx, before+fmt.Sprintf("SELECT pg_advisory_lock(%d::bigint * 1000000 + i) FROM generate_series(1, 1000000) AS i", free),
			pgx.QueryExecModeSimpleProtocol)
		if err == nil || !strings.Contains(err.Error(), "53200") {
			t.Fatalf("the lock table is not full: %v", err)
		}
		for range 3 {
			free++
			if !must(pgx.CollectExactlyOneRow(must(db.Query(ctx, "SELECT pg_advisory_unlock($1)", int64(free)))(t), pgx.RowTo[bool]))(t) {
				t.Fatal("it was not locked")
			}
		}
	}
	fill("")
	for i, err := range a.Release(ctx, grants) {
		if err != nil {
			t.Errorf("release %d: %v", i, err)
		}
	}
	polls := 0
	for i := range 10 {
		wake, err := b.Watch(ctx, fmt.Sprint("n", i))
		if err != nil {
			t.Errorf("watch %d: %v", i, err)
		}
		if wake == nil {
			polls++
		}
	}
	if polls == 0 {
		t.Error("the lock table was not full")
	}
	fill("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'listener'; SELECT pg_sleep(0.03);")
	for range 2 { // the first wake-up may be for the end of the connection
		var g anylock.Grant
		eventually(t, 10*time.Second, "an acquire", func() (ok bool) {
			var err error
			g, err = a.Acquire(ctx, request("w"))
			return err == nil
		})
		eventually(t, 10*time.Second, "a release", func() bool { return a.Release(ctx, []anylock.Grant{g})[0] == nil })
		select {
		case <-wake:
		case <-time.After(5 * time.Second):
			t.Error("who listened before there was no room is not told to look")
		}
	}
	must(db.Exec(ctx, "SELECT pg_advisory_unlock_all()"))(t)
	eventually(t, 5*time.Second, "a place in the table", func() bool { return must(b.Watch(ctx, "later"))(t) != nil })
}

// Nobody is told that it listens while nothing does.
func TestWatchDuringAnOutage(t *testing.T) {
	s := server(t)
	db := admin(t, s)
	const name = "watch_during_an_outage"
	db.exec("CREATE DATABASE " + name)
	at := strings.Replace(urlOf(s), "/postgres?", "/"+name+"?", 1)
	b := open(t, at+"&application_name="+name)
	t.Cleanup(func() { db.exec("DROP DATABASE " + name + " WITH (FORCE)") })
	wake := must(b.Watch(t.Context(), "n"))(t)
	db.exec("ALTER DATABASE " + name + " ALLOW_CONNECTIONS false")
	db.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", name)
	eventually(t, 10*time.Second, "an error of Watch", func() bool {
		_, err := b.Watch(ctx10(t), "n")
		return err != nil
	})
	db.exec("ALTER DATABASE " + name + " ALLOW_CONNECTIONS true")
	woken := func(why string) {
		t.Helper()
		select {
		case <-wake:
		case <-time.After(15 * time.Second):
			t.Errorf("not woken by %s", why)
		}
	}
	woken("the new connection")
	g := must(open(t, at).Acquire(ctx10(t), request("n")))(t)
	must(0, b.Release(ctx10(t), []anylock.Grant{g})[0])(t)
	woken("a release after the outage")
}

// What the network delivers after its release, as when a partition heals, must not take a lock that nobody would give back.
func TestLateRequestIsRefused(t *testing.T) {
	s := server(t)
	b := open(t, urlOf(s, freshSchema(t, s)))
	release := func(r anylock.Request, want error) {
		t.Helper()
		if err := b.Release(ctx10(t), []anylock.Grant{{Name: r.Name, ID: r.ID}})[0]; !errors.Is(err, want) {
			t.Fatalf("release: %v", err)
		}
	}
	refused := func(r anylock.Request) {
		t.Helper()
		if _, err := b.Acquire(ctx10(t), r); !errors.Is(err, anylock.ErrLost) {
			t.Fatalf("a late request: %v", err)
		}
	}
	// The name is new to the store; then it is free.
	for range 2 {
		late := request("n")
		release(late, anylock.ErrLost)
		refused(late)
	}
	// The request was granted when it was sent for the second time.
	first := request("n")
	g := must(b.Acquire(ctx10(t), first))(t)
	release(first, nil)
	refused(first)
	// Another has the lock, and keeps it.
	holder, late := request("n"), request("n")
	next := must(b.Acquire(ctx10(t), holder))(t)
	if next.Token <= g.Token {
		t.Errorf("token %d after %d", next.Token, g.Token)
	}
	release(late, anylock.ErrLost)
	if r := b.Renew(ctx10(t), []anylock.Grant{next})[0]; r.Err != nil {
		t.Errorf("the holder's renewal: %v", r.Err)
	}
	refused(late)
	release(holder, nil)
	refused(late)
	// Two requests for one lock in one batch.
	one, two := request("n"), request("n")
	b.Release(ctx10(t), []anylock.Grant{{Name: "n", ID: one.ID}, {Name: "n", ID: two.ID}})
	refused(one)
	refused(two)
	must(b.Acquire(ctx10(t), request("n")))(t)
}
