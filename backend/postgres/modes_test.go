package postgres_test

import (
	"bufio"
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/backend/postgres"
	"github.com/anylock/anylock/conformance/containers"
)

var modes = []string{"lease", "rowlock", "advisory"}

func eachMode(t *testing.T, f func(t *testing.T, mode string)) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) { f(t, "mode="+mode) })
	}
}

// holderEnv makes the test binary hold a lock until it is killed.
const holderEnv = "ANYLOCK_TEST_HOLDER"

func TestHolderProcess(t *testing.T) {
	url := os.Getenv(holderEnv)
	if url == "" {
		t.Skip("a helper of TestSilentHolder")
	}
	l := must(anylock.Open(context.Background(), url, anylock.WithTTL(2*time.Second)))(t)
	lease := must(l.Acquire(context.Background(), "n"))(t)
	fmt.Println("held")
	<-lease.Done()
	fmt.Println("lost")
}

func TestSilentHolder(t *testing.T) {
	const ttl = 2 * time.Second
	s := server(t)
	eachMode(t, func(t *testing.T, mode string) {
		schema := freshSchema(t, s)
		watcher := locker(t, urlOf(s, schema, mode))
		freed := func(since time.Time) {
			t.Helper()
			lease, err := watcher.Acquire(ctx10(t), "n")
			if took := time.Since(since); err != nil || took > ttl+2*time.Second {
				t.Fatalf("the lock was free after %v: %v", took, err)
			} else {
				t.Logf("free after %v", took)
			}
			must(0, lease.Release(ctx10(t)))(t)
		}
		t.Run("cut off", func(t *testing.T) {
			network := containers.NewNetwork(t)
			l := locker(t, urlAt(s, network.Addr(t, s.Addr()), schema, mode), anylock.WithTTL(ttl))
			lease := must(l.Acquire(ctx10(t), "n"))(t)
			ended := make(chan time.Time, 1)
			go func() { <-lease.Done(); ended <- time.Now() }()
			time.Sleep(ttl)
			network.Cut()
			freed(time.Now())
			select {
			case <-ended:
			default:
				t.Error("the lock was given away before its holder was told")
			}
			network.Heal()
		})
		for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
			t.Run(signal.String(), func(t *testing.T) {
				holder := exec.Command(os.Args[0], "-test.run=^TestHolderProcess$")
				holder.Env = append(os.Environ(), holderEnv+"="+urlOf(s, schema, mode))
				out := must(holder.StdoutPipe())(t)
				must(0, holder.Start())(t)
				defer func() { _ = holder.Process.Kill(); _ = holder.Wait() }()
				lines := bufio.NewScanner(out)
				for lines.Scan() && lines.Text() != "held" {
				}
				must(0, holder.Process.Signal(signal))(t)
				freed(time.Now())
			})
		}
	})
}

func TestTerminatedSession(t *testing.T) {
	s := server(t)
	for _, mode := range []string{"mode=rowlock", "mode=advisory"} {
		t.Run(mode, func(t *testing.T) {
			schema := freshSchema(t, s)
			app := "app-" + cryptorand.Text()
			l := locker(t, urlOf(s, schema, mode, "application_name="+app), anylock.WithTTL(time.Minute))
			other := locker(t, urlOf(s, schema, mode))
			lease := must(l.Acquire(ctx10(t), "n"))(t)
			admin(t, s).exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", app)
			select {
			case <-lease.Done():
			case <-time.After(time.Second):
				t.Error("the holder was not told that the server has ended its session")
			}
			if !errors.Is(lease.Err(), anylock.ErrLost) {
				t.Errorf("Err: %v", lease.Err())
			}
			next := must(other.TryAcquire(ctx10(t), "n"))(t)
			if next.Token() <= lease.Token() {
				t.Errorf("token %d after %d", next.Token(), lease.Token())
			}
			if err := lease.Release(ctx10(t)); !errors.Is(err, anylock.ErrLost) {
				t.Errorf("Release: %v", err)
			}
		})
	}
}

func TestCancelledAcquires(t *testing.T) {
	s := server(t)
	eachMode(t, func(t *testing.T, mode string) {
		schema := freshSchema(t, s)
		app := "app-" + cryptorand.Text()
		db := admin(t, s)
		l := locker(t, urlOf(s, schema, mode, "application_name="+app, "conns=8"))
		holder := locker(t, urlOf(s, schema, mode))
		must(holder.Acquire(ctx10(t), "held"))(t)
		busy := func() string {
			return value[string](db, `SELECT coalesce(string_agg(state || ': ' || query, '; '), '') FROM pg_stat_activity
				WHERE application_name = $1 AND state <> 'idle'`, app) +
				value[string](db, `SELECT coalesce(string_agg(locktype || ' ' || mode, '; '), '') FROM pg_locks
				WHERE pid IN (SELECT pid FROM pg_stat_activity WHERE application_name = $1) AND
					(NOT granted OR locktype = 'advisory' AND mode = 'ExclusiveLock')`, app)
		}
		var running sync.WaitGroup
		for i := range 6 {
			running.Go(func() {
				for range 50 {
					ctx, cancel := context.WithTimeout(context.Background(), rand.N(20*time.Millisecond))
					lease, err := l.Acquire(ctx, []string{"held", fmt.Sprint("free", i)}[rand.IntN(2)])
					cancel()
					if err == nil {
						_ = lease.Release(context.Background())
					} else if !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
				}
			})
		}
		running.Wait()
		end := time.Now().Add(time.Second)
		left := busy()
		for ; left != "" && time.Now().Before(end); left = busy() {
		}
		if left != "" {
			t.Errorf("after a second there is: %s", left)
		}
		conns := value[int64](db, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", app)
		if conns > 8+4+1 {
			t.Errorf("%d connections are open", conns)
		}
		for i := range 6 {
			lease := must(l.TryAcquire(ctx10(t), fmt.Sprint("free", i)))(t)
			must(0, lease.Release(ctx10(t)))(t)
		}
	})
}

// The application holds connections of its own pool in the critical section, and there are more clients than connections.
func TestFewConnections(t *testing.T) {
	s := server(t)
	eachMode(t, func(t *testing.T, mode string) {
		schema := freshSchema(t, s)
		l := locker(t, urlOf(s, schema, mode, "conns=4", "pool_max_conns=4"), anylock.WithRequestTimeout(10*time.Second))
		other := locker(t, urlOf(s, schema, mode, "conns=4", "pool_max_conns=4"), anylock.WithRequestTimeout(10*time.Second))
		app := admin(t, s)
		var inside [100]atomic.Int32
		var done atomic.Int32
		var running sync.WaitGroup
		for i := range 64 {
			running.Go(func() {
				l := []*anylock.Locker{l, other}[i%2]
				for range 10 {
					n := rand.IntN(100)
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					err := l.Do(ctx, fmt.Sprint(n), func(ctx context.Context, _ *anylock.Lease) error {
						if inside[n].Add(1) > 1 {
							t.Error("two holders")
						}
						defer inside[n].Add(-1)
						return pgx.BeginFunc(ctx, app, func(tx pgx.Tx) error {
							_, err := tx.Exec(ctx, "SELECT pg_sleep(0.001)")
							return err
						})
					})
					cancel()
					if err != nil {
						t.Error(err)
						return
					}
					done.Add(1)
				}
			})
		}
		running.Wait()
		if done.Load() != 640 {
			t.Errorf("%d of 640", done.Load())
		}
	})
}

func TestExhaustedPool(t *testing.T) {
	s := server(t)
	l := locker(t, urlOf(s, freshSchema(t, s), "mode=rowlock", "conns=2"))
	one := must(l.Acquire(ctx10(t), "1"))(t)
	must(l.Acquire(ctx10(t), "2"))(t)
	start := time.Now()
	_, err := l.Acquire(context.Background(), "3")
	if !errors.Is(err, anylock.ErrUnavailable) || !strings.Contains(err.Error(), "conns=") {
		t.Errorf("with all connections taken: %v", err)
	}
	if took := time.Since(start); took > 8*time.Second {
		t.Errorf("after %v", took)
	}
	must(0, one.Release(ctx10(t)))(t)
	must(l.Acquire(ctx10(t), "3"))(t)
}

func TestTryLeavesNothingOpen(t *testing.T) {
	s := server(t)
	for _, mode := range []string{"mode=rowlock", "mode=advisory"} {
		schema := freshSchema(t, s)
		app := "app-" + cryptorand.Text()
		a := locker(t, urlOf(s, schema, mode))
		b := locker(t, urlOf(s, schema, mode, "application_name="+app))
		must(a.Acquire(ctx10(t), "n"))(t)
		for range 100 {
			if _, err := b.TryAcquire(ctx10(t), "n"); !errors.Is(err, anylock.ErrHeld) {
				t.Fatal(err)
			}
		}
		db := admin(t, s)
		if n := value[int64](db, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND state <> 'idle'", app); n != 0 {
			t.Errorf("%s: %d sessions are not idle", mode, n)
		}
		if n := value[int64](db, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", app); n > 5 {
			t.Errorf("%s: %d connections for one try at a time", mode, n)
		}
	}
}

// B106: what the administrator has set for idle sessions does not end holders.
func TestAdministratorsTimeouts(t *testing.T) {
	s := containers.Postgres(t, containers.Args("-c", "idle_in_transaction_session_timeout=500ms", "-c", "idle_session_timeout=700ms",
		"-c", "lock_timeout=300ms", "-c", "statement_timeout=400ms", "-c", "transaction_timeout=1s"))
	eachMode(t, func(t *testing.T, mode string) {
		schema := freshSchema(t, s)
		a, b := locker(t, urlOf(s, schema, mode), anylock.WithTTL(9*time.Second)), locker(t, urlOf(s, schema, mode), anylock.WithTTL(9*time.Second))
		lease := must(a.Acquire(ctx10(t), "n"))(t)
		got := make(chan *anylock.Lease)
		go func() { got <- must(b.Acquire(ctx10(t), "n"))(t) }()
		select {
		case <-lease.Done():
			t.Fatal(lease.Err())
		case <-got:
			t.Fatal("two holders")
		case <-time.After(2500 * time.Millisecond):
		}
		must(0, lease.Release(ctx10(t)))(t)
		must(0, (<-got).Release(ctx10(t)))(t)
	})
}

func TestContentionIsNotLogged(t *testing.T) {
	s := containers.Postgres(t, containers.Args("-c", "logging_collector=on", "-c", "log_directory=/tmp", "-c", "log_filename=server.log"))
	errorsLogged := func() string {
		out, _ := s.Exec(context.Background(), "sh", "-c", "grep -E 'ERROR|FATAL|WARNING' /tmp/server.log; true")
		return out
	}
	eachMode(t, func(t *testing.T, mode string) {
		schema := freshSchema(t, s)
		open(t, urlOf(s, schema, mode))
		before := errorsLogged()
		var running sync.WaitGroup
		for range 5 {
			l := locker(t, urlOf(s, schema, mode))
			for i := range 4 {
				running.Go(func() {
					for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
						lease, err := l.TryAcquire(context.Background(), fmt.Sprint(i%2))
						if err == nil {
							err = lease.Release(context.Background())
						}
						if err != nil && !errors.Is(err, anylock.ErrHeld) {
							t.Error(err)
						}
					}
				})
			}
		}
		running.Wait()
		if after := strings.TrimPrefix(errorsLogged(), before); after != "" {
			t.Errorf("contention is in the server's log:\n%.1000s", after)
		}
	})
}

func TestKillNine(t *testing.T) {
	rounds := 5
	if long() {
		rounds = 200
	}
	s := containers.Postgres(t)
	eachMode(t, func(t *testing.T, mode string) {
		l := locker(t, urlOf(s, freshSchema(t, s), mode), anylock.WithTTL(300*time.Millisecond), anylock.WithRequestTimeout(20*time.Second))
		var last anylock.Token
		for range rounds {
			lease := must(l.Acquire(context.Background(), "n"))(t)
			if lease.Token() <= last {
				t.Fatalf("token %d after %d", lease.Token(), last)
			}
			last = lease.Token()
			must(0, s.Restart(context.Background()))(t)
			_ = lease.Release(ctx10(t))
		}
	})
}

func TestManyStarters(t *testing.T) {
	s := server(t)
	eachMode(t, func(t *testing.T, mode string) {
		schema := freshSchema(t, s)
		var running sync.WaitGroup
		for range 20 {
			running.Go(func() {
				l := must(anylock.Open(ctx10(t), urlOf(s, schema, mode, "conns=2")))(t)
				defer func() { _ = l.Close(context.Background()) }()
				lease := must(l.Acquire(ctx10(t), "n"))(t)
				must(0, lease.Release(ctx10(t)))(t)
			})
		}
		running.Wait()
	})
}

func TestSchemaIsSufficient(t *testing.T) {
	s := server(t)
	db := admin(t, s)
	name := "team_" + strings.ToLower(cryptorand.Text())
	role := "user_" + strings.ToLower(cryptorand.Text())
	ddl := must(postgres.Schema(postgres.WithSchema(name), postgres.WithTable("locks")))(t)
	must(db.Exec(ctx10(t), ddl, pgx.QueryExecModeSimpleProtocol))(t)
	db.exec("CREATE ROLE " + role + " LOGIN PASSWORD 'secret-of-role'")
	defer db.exec("DROP ROLE " + role)
	defer db.exec("DROP OWNED BY " + role)
	defer db.exec("DROP SCHEMA " + name + " CASCADE")
	db.exec("GRANT USAGE ON SCHEMA " + name + " TO " + role)
	db.exec("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA " + name + " TO " + role)
	as := func(params ...string) string {
		return strings.Replace(urlOf(s, params...), s.Username+":"+s.Password, role+":secret-of-role", 1)
	}
	eachMode(t, func(t *testing.T, mode string) {
		l := locker(t, as("schema="+name, "table=locks", mode, "mixed=true"))
		lease := must(l.Acquire(ctx10(t), "n"))(t)
		must(0, lease.Release(ctx10(t)))(t)
		_, err := postgres.Open(ctx10(t), as("schema="+name, "table=other", mode))
		if !errors.Is(err, anylock.ErrInvalid) || !strings.Contains(err.Error(), "other") {
			t.Errorf("a missing table and no right to create it: %v", err)
		}
	})
	db.exec("CREATE TABLE " + name + ".wrong (name text)")
	db.exec("GRANT SELECT ON " + name + ".wrong TO " + role)
	if _, err := postgres.Open(ctx10(t), as("schema="+name, "table=wrong")); !errors.Is(err, anylock.ErrInvalid) {
		t.Errorf("a table with other columns: %v", err)
	}
	l := locker(t, as("schema="+name, "table=locks"))
	db.exec("REVOKE INSERT ON " + name + ".locks FROM " + role)
	if _, err := l.TryAcquire(ctx10(t), "m"); !errors.Is(err, anylock.ErrInvalid) {
		t.Errorf("without the right to INSERT: %v", err)
	}
}

func TestTableIsMadeLater(t *testing.T) {
	s := server(t)
	schema := freshSchema(t, s)
	name := strings.TrimPrefix(schema, "schema=")
	l := locker(t, urlOf(s, schema))
	keeps := locker(t, urlOf(s, schema, "create=false"))
	db := admin(t, s)
	db.exec("DROP TABLE " + name + ".anylock")
	if _, err := keeps.TryAcquire(ctx10(t), "n"); !errors.Is(err, anylock.ErrInvalid) || !strings.Contains(err.Error(), "anylock") {
		t.Errorf("without the table: %v", err)
	}
	must(l.TryAcquire(ctx10(t), "n"))(t)
	must(keeps.TryAcquire(ctx10(t), "m"))(t)
}

func TestBadInput(t *testing.T) {
	s := server(t)
	bouncer := containers.PgBouncer(t, containers.Postgres(t), "default_pool_size = 2")
	closed := strings.Replace(urlOf(s), s.Addr(), "127.0.0.1:1", 1)
	db := admin(t, s)
	db.exec("CREATE TABLE bad_input (id bigint PRIMARY KEY)")
	defer db.exec("DROP TABLE bad_input")
	for _, c := range []struct {
		what, url string
		class     error
		says      string
	}{
		{"wrong password", strings.Replace(urlOf(s), s.Password, "wrong-secret", 1), anylock.ErrInvalid, "password"},
		{"no such database", strings.Replace(urlOf(s), "/postgres?", "/nothing?", 1), anylock.ErrInvalid, "database"},
		{"nobody there", closed, anylock.ErrUnavailable, "refused"},
		{"a pooler under rowlock", urlOf(bouncer, "mode=rowlock"), anylock.ErrInvalid, "pooler"},
		{"a pooler under advisory", urlOf(bouncer, "mode=advisory"), anylock.ErrInvalid, "pooler"},
		{"unknown parameter", urlOf(s, "shcema=x"), anylock.ErrInvalid, `"schema"`},
		{"unknown mode", urlOf(s, "mode=rowlok"), anylock.ErrInvalid, "rowlock"},
		{"column without table", urlOf(s, "mode=rowlock", "column=id"), anylock.ErrInvalid, "table="},
		{"column under lease", urlOf(s, "table=t", "column=id"), anylock.ErrInvalid, "rowlock"},
		{"conns", urlOf(s, "conns=0"), anylock.ErrInvalid, "conns"},
		{"not a URL", "postgres://user:topsecret%@[::1", anylock.ErrInvalid, ""},
		{"a port", "postgres://user:topsecret@host:port/db", anylock.ErrInvalid, ""},
		{"sslmode", "postgres://user:topsecret@host/db?sslmode=topsecret", anylock.ErrInvalid, ""},
		{"a value", urlOf(s, "target_session_attrs=rw"), anylock.ErrInvalid, "target_session_attrs"},
		{"a file", strings.Replace(urlOf(s), "sslmode=disable", "sslmode=require&sslrootcert=/no/such/file", 1), anylock.ErrInvalid, "/no/such/file"},
		{"no TLS there", strings.Replace(urlOf(s), "sslmode=disable", "sslmode=require", 1), anylock.ErrInvalid, "sslmode="},
		{"listen", urlOf(s, "listen=nowhere"), anylock.ErrInvalid, "HOST:PORT"},
		{"nobody listens", urlOf(s, "listen=127.0.0.1:1"), anylock.ErrUnavailable, "listen="},
		{"a table of the application", urlOf(s, "mode=rowlock", "table=bad_input"), anylock.ErrInvalid, "another one"},
		{"no adopted table", urlOf(s, "mode=rowlock", "table=nothing", "column=id"), anylock.ErrInvalid, "correct table="},
		{"no adopted column", urlOf(s, "mode=rowlock", "table=bad_input", "column=nothing"), anylock.ErrInvalid, "correct column="},
	} {
		t.Run(c.what, func(t *testing.T) {
			b, err := postgres.Open(ctx10(t), c.url)
			if err == nil {
				_ = b.Close()
			}
			if !errors.Is(err, c.class) || !strings.Contains(fmt.Sprint(err), c.says) {
				t.Errorf("got %v, want %v and %q in it", err, c.class, c.says)
			}
			if strings.Contains(fmt.Sprint(err), "\n") {
				t.Errorf("in several lines: %v", err)
			}
			for _, secret := range []string{s.Password, "wrong-secret", "topsecret"} {
				if strings.Contains(fmt.Sprint(err), secret) {
					t.Errorf("the password is in the error: %v", err)
				}
			}
			t.Log(err)
		})
	}
	if value[bool](db, "SELECT to_regclass('bad_input_rows') IS NOT NULL") {
		t.Error("a table was made beside one of the application's")
	}
}

func TestPrefixesKeepApart(t *testing.T) {
	s := server(t)
	eachMode(t, func(t *testing.T, mode string) {
		schema := freshSchema(t, s)
		a, b := locker(t, urlOf(s, schema, mode, "prefix=a:")), locker(t, urlOf(s, schema, mode, "prefix=b:"))
		db := admin(t, s)
		conn := must(db.Acquire(ctx10(t)))(t)
		defer conn.Release()
		must(conn.Exec(ctx10(t), "SELECT pg_advisory_lock(k) FROM unnest('{-1,0,1}'::bigint[]) k"))(t)
		defer func() { must(conn.Exec(ctx10(t), "SELECT pg_advisory_unlock_all()"))(t) }()
		must(a.TryAcquire(ctx10(t), "n"))(t)
		must(b.TryAcquire(ctx10(t), "n"))(t)
	})
}

func TestAdvisoryKeys(t *testing.T) {
	s := server(t)
	in := postgres.WithSchema(strings.TrimPrefix(freshSchema(t, s), "schema="))
	db := admin(t, s)
	b := must(postgres.New(db.Pool, in, postgres.WithMode(postgres.Advisory), postgres.WithKey(func(string) int64 { return 4711 })))(t)
	defer b.Close()
	ctx := ctx10(t)
	g := must(b.Acquire(ctx, request("a")))(t)
	for range 20 { // another name with the same key: a session would let it in
		if _, err := b.Acquire(ctx, request("b")); !errors.Is(err, anylock.ErrHeld) {
			t.Fatalf("stacked: %v", err)
		}
	}
	if value[bool](db, "SELECT pg_try_advisory_lock(4711)") {
		t.Error("other code got the key")
	}
	must(0, b.Release(ctx, []anylock.Grant{g})[0])(t)
	conn := must(db.Acquire(ctx))(t)
	defer conn.Release()
	must(conn.Exec(ctx, "SELECT pg_advisory_lock(4711)"))(t)
	if _, err := b.Acquire(ctx, request("a")); !errors.Is(err, anylock.ErrHeld) {
		t.Errorf("while other code has the key: %v", err)
	}
	must(conn.Exec(ctx, "SELECT pg_advisory_unlock(4711)"))(t)
}

// Many locks of one client share few sessions.
func TestAdvisorySessionsAreShared(t *testing.T) {
	s := server(t)
	app := "app-" + cryptorand.Text()
	l := locker(t, urlOf(s, freshSchema(t, s), "mode=advisory", "application_name="+app))
	for i := range 100 {
		must(l.TryAcquire(ctx10(t), fmt.Sprint(i)))(t)
	}
	if n := value[int64](admin(t, s), "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1", app); n > 8 {
		t.Errorf("%d connections for 100 locks", n)
	}
}

func TestStandby(t *testing.T) {
	s := containers.Postgres(t)
	ctx := ctx10(t)
	running := make(map[string]*postgres.Backend)
	for _, mode := range modes {
		running[mode] = open(t, urlOf(s, "mode="+mode, "table="+mode))
	}
	held := must(running["lease"].Acquire(ctx, request("held")))(t)
	later := anylock.Grant{Name: "held", ID: request("held").ID, TTL: held.TTL} // which a replica that is behind has not heard of
	must(s.Exec(ctx, "touch", "/anylock/data/standby.signal"))(t)
	must(0, s.Restart(ctx))(t)
	for _, mode := range modes {
		_, err := postgres.Open(ctx, urlOf(s, "mode="+mode, "table="+mode))
		if !errors.Is(err, anylock.ErrUnavailable) || !strings.Contains(err.Error(), "standby") {
			t.Errorf("%s: Open: %v", mode, err)
		}
		_, err = running[mode].Acquire(ctx, request("n"))
		if !errors.Is(err, anylock.ErrUnavailable) || !strings.Contains(err.Error(), "read-only") {
			t.Errorf("%s: Acquire: %v", mode, err)
		}
	}
	grants := []anylock.Grant{held, later}
	for i, renewal := range running["lease"].Renew(ctx, grants) {
		if !errors.Is(renewal.Err, anylock.ErrUnavailable) || errors.Is(renewal.Err, anylock.ErrLost) {
			t.Errorf("Renew of %d: %v", i, renewal.Err)
		}
	}
	for i, err := range running["lease"].Release(ctx, grants) {
		if !errors.Is(err, anylock.ErrUnavailable) || errors.Is(err, anylock.ErrLost) {
			t.Errorf("Release of %d: %v", i, err)
		}
	}
}

func TestDocumentedSchema(t *testing.T) {
	page := string(must(os.ReadFile("../../docs/backends/postgres.md"))(t))
	var ddl []string
	for line := range strings.SplitSeq(must(postgres.Schema())(t), "\n") {
		if !strings.HasPrefix(line, "--") {
			ddl = append(ddl, line)
		}
	}
	bare := strings.NewReplacer(`"anylock"`, "anylock", `"anylock_rows"`, "anylock_rows")
	if text := bare.Replace(strings.TrimSpace(strings.Join(ddl, "\n"))); !strings.Contains(page, text) {
		t.Errorf("docs/backends/postgres.md has another schema than\n%s", text)
	}
}

// A lock and its token are two round trips, on two connections.
func TestRoundTripsOfSessions(t *testing.T) {
	s := server(t)
	for mode, want := range map[string]int{"mode=rowlock": 1, "mode=advisory": 2} {
		network := containers.NewNetwork(t)
		b := open(t, urlAt(s, network.Addr(t, s.Addr()), freshSchema(t, s), mode, "pool_max_conns=1", "conns=1"))
		var acquire, release int
		for range 4 { // the first ones prepare statements and make the row
			before := network.RoundTrips()
			g := must(b.Acquire(ctx10(t), request("n")))(t)
			acquire = network.RoundTrips() - before
			must(0, b.Release(ctx10(t), []anylock.Grant{g})[0])(t)
			release = network.RoundTrips() - before - acquire
			time.Sleep(50 * time.Millisecond) // an advisory session retires in the background
		}
		if acquire != want || release != 1 {
			t.Errorf("%s: acquire takes %d round trips, release %d; want %d and 1", mode, acquire, release, want)
		}
	}
}

// The modes do not exclude each other, so a table is for one of them.
func TestOneTableOneMode(t *testing.T) {
	s := server(t)
	for _, first := range modes {
		for _, second := range modes {
			if first == second {
				continue
			}
			t.Run(first+" then "+second, func(t *testing.T) {
				schema := freshSchema(t, s)
				in := postgres.WithSchema(strings.TrimPrefix(schema, "schema="))
				db := admin(t, s)
				refused := func(what string, err error) {
					t.Helper()
					if !errors.Is(err, anylock.ErrInvalid) || !strings.Contains(err.Error(), "mode="+first) || !strings.Contains(err.Error(), "DELETE FROM") {
						t.Errorf("%s in mode %s of a table for mode %s: %v", what, second, first, err)
					}
				}
				old := locker(t, urlOf(s, schema, "mode="+first))
				must(old.Acquire(ctx10(t), "n"))(t)
				other, err := postgres.Open(ctx10(t), urlOf(s, schema, "mode="+second))
				if err == nil {
					_ = other.Close()
				}
				refused("Open", err)
				b := must(postgres.New(db.Pool, in, postgres.WithMode(postgres.Mode(second))))(t)
				defer b.Close()
				_, err = b.Acquire(ctx10(t), request("n"))
				refused("Acquire", err)
				if second == "rowlock" {
					tx := must(db.Begin(ctx10(t)))(t)
					refused("LockTx", postgres.LockTx(ctx10(t), tx, "n", in))
					must(0, postgres.LockTx(ctx10(t), tx, "n", in, postgres.WithMixedModes()))(t)
					must(0, tx.Rollback(ctx10(t)))(t)
				}
				mixed := open(t, urlOf(s, schema, "mode="+second, "mixed=true"))
				g := must(mixed.Acquire(ctx10(t), request("n")))(t)
				must(0, mixed.Release(ctx10(t), []anylock.Grant{g})[0])(t)

				must(0, old.Close(ctx10(t)))(t)
				_, after, _ := strings.Cut(err.Error(), "DELETE FROM")
				move, _, _ := strings.Cut(after, ". To keep")
				db.exec("DELETE FROM" + move)
				must(b.Acquire(ctx10(t), request("n")))(t)
				_, err = postgres.Open(ctx10(t), urlOf(s, schema, "mode="+first))
				if !errors.Is(err, anylock.ErrInvalid) {
					t.Errorf("the old mode, after the move: %v", err)
				}
			})
		}
	}
}

// Clients of two modes that start together: one mode has the table.
func TestOneTableOneModeRaced(t *testing.T) {
	s := server(t)
	for range 5 {
		schema := freshSchema(t, s)
		var opened [3]atomic.Int32
		var running sync.WaitGroup
		for i := range 12 {
			running.Go(func() {
				b, err := postgres.Open(ctx10(t), urlOf(s, schema, "mode="+modes[i%3]))
				if err == nil {
					opened[i%3].Add(1)
					_ = b.Close()
				} else if !errors.Is(err, anylock.ErrInvalid) {
					t.Error(err)
				}
			})
		}
		running.Wait()
		winners := 0
		for i := range opened {
			if n := opened[i].Load(); n == 4 {
				winners++
			} else if n != 0 {
				t.Errorf("%d of 4 clients of mode %s have the table", n, modes[i])
			}
		}
		if winners != 1 {
			t.Errorf("%d modes have the table", winners)
		}
	}
}

// A refusal tells who has the lock, or nobody: not who had it before, nor who asks.
func TestHolderIsWhoHasIt(t *testing.T) {
	s := server(t)
	role := "holder_" + strings.ToLower(cryptorand.Text())
	db := admin(t, s)
	db.exec("CREATE ROLE " + role + " LOGIN PASSWORD 'secret-of-role'")
	defer db.exec("DROP ROLE " + role)
	defer db.exec("DROP OWNED BY " + role)
	eachMode(t, func(t *testing.T, mode string) {
		schema := freshSchema(t, s)
		name := strings.TrimPrefix(schema, "schema=")
		open(t, urlOf(s, schema, mode))
		db.exec("GRANT USAGE ON SCHEMA " + name + " TO " + role)
		db.exec("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA " + name + " TO " + role)
		a := open(t, urlOf(s, schema, mode))
		b := open(t, strings.Replace(urlOf(s, schema, mode), s.Username+":"+s.Password, role+":secret-of-role", 1))
		labelled := func(label string) anylock.Request {
			req := request("n")
			req.Holder = label
			return req
		}
		asks := func(who *postgres.Backend) string {
			t.Helper()
			g, err := who.Acquire(ctx10(t), labelled("who asks"))
			held, ok := errors.AsType[*anylock.HeldError](err)
			if !ok {
				t.Fatalf("token %d, %v", g.Token, err)
			}
			return held.Holder
		}
		for _, wait := range []bool{false, true} {
			for _, holder := range []*postgres.Backend{a, b, a} {
				req := labelled("the holder")
				req.Wait = wait
				g := must(holder.Acquire(ctx10(t), req))(t)
				for _, other := range []*postgres.Backend{a, b} {
					if who := asks(other); who != "the holder" {
						t.Errorf("wait=%v: the holder is called %q", wait, who)
					}
				}
				must(0, holder.Release(ctx10(t), []anylock.Grant{g})[0])(t)
			}
		}
		if mode == "mode=lease" {
			return
		}
		foreign := must(db.Begin(ctx10(t)))(t)
		if mode == "mode=rowlock" {
			must(0, postgres.LockTx(ctx10(t), foreign, "n", postgres.WithSchema(name)))(t)
		} else {
			g := must(a.Acquire(ctx10(t), labelled("the holder")))(t)
			var key int64
			const held = "SELECT classid::bigint << 32 | objid::bigint FROM pg_locks, " // of the one that the table knows
			must(0, foreign.QueryRow(ctx10(t), held+name+".anylock WHERE locktype = 'advisory' AND pid = session").Scan(&key))(t)
			must(0, a.Release(ctx10(t), []anylock.Grant{g})[0])(t)
			must(foreign.Exec(ctx10(t), "SELECT pg_advisory_xact_lock($1)", key))(t)
		}
		defer func() { must(0, foreign.Rollback(ctx10(t)))(t) }()
		for _, other := range []*postgres.Backend{a, b} {
			if who := asks(other); who != "" {
				t.Errorf("other code has the lock, and its holder is called %q", who)
			}
		}
	})
}

// Two who try at the same time: the one that is refused does not hear its own name.
func TestHolderIsNotWhoAsks(t *testing.T) {
	s := server(t)
	eachMode(t, func(t *testing.T, mode string) {
		schema := freshSchema(t, s)
		var refused atomic.Int32
		var running sync.WaitGroup
		for i := range 2 {
			label := fmt.Sprint("locker ", i)
			l := locker(t, urlOf(s, schema, mode), anylock.WithHolder(label))
			running.Go(func() {
				for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
					lease, err := l.TryAcquire(context.Background(), "n")
					if err == nil {
						err = lease.Release(context.Background())
					}
					if held, ok := errors.AsType[*anylock.HeldError](err); ok {
						refused.Add(1)
						if held.Holder == label {
							t.Errorf("refused since %s has it, which is the one that asks", label)
							return
						}
					} else if err != nil {
						t.Error(err)
					}
				}
			})
		}
		running.Wait()
		t.Log(refused.Load(), "refusals")
	})
}

// Waiters that have vanished behind a network that swallows everything do not cost the next one a TTL each.
func TestVanishedWaiters(t *testing.T) {
	s := containers.Postgres(t)
	for _, mode := range []string{"rowlock", "advisory"} {
		t.Run(mode, func(t *testing.T) {
			const ttl = 20 * time.Second
			params := []string{freshSchema(t, s), "mode=" + mode, "ttl=" + ttl.String()}
			holder := locker(t, urlOf(s, params...))
			lease := must(holder.Acquire(ctx10(t), "n"))(t)
			db := admin(t, s)
			waiting := func() int {
				return value[int](db, "SELECT count(*)::int FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'anylock'")
			}
			for i := range 3 {
				network := containers.NewNetwork(t)
				vanishing := locker(t, urlAt(s, network.Addr(t, s.Addr()), params...), anylock.WithLogger(nil))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() { _, _ = vanishing.Acquire(ctx, "n") }()
				eventually(t, 10*time.Second, "one more waits", func() bool { return waiting() == i+1 })
				network.Cut()
				defer network.Heal()
			}
			start := time.Now()
			must(0, lease.Release(ctx10(t)))(t)
			ctx, cancel := context.WithTimeout(context.Background(), 3*ttl)
			defer cancel()
			must(locker(t, urlOf(s, params...)).Acquire(ctx, "n"))(t)
			if took := time.Since(start); took > ttl {
				t.Errorf("free after %v, with three who have vanished and a TTL of %v", took, ttl)
			}
		})
	}
}
