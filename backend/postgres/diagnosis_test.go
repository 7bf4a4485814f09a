package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
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

// plainURL is a URL of the form that the README shows: without sslmode.
func plainURL(s *containers.Server, user, password string, params ...string) string {
	return "postgres://" + url.UserPassword(user, password).String() + "@" + s.Addr() + "/postgres?" + strings.Join(params, "&")
}

// role makes a role that can do all with the lock tables of a schema, with settings of its own.
func role(t *testing.T, db sql, name string, statements ...string) {
	t.Helper()
	db.exec("CREATE ROLE " + name + " LOGIN PASSWORD 'secret-of-a-role'")
	t.Cleanup(func() { db.exec("DROP OWNED BY " + name); db.exec("DROP ROLE " + name) })
	for _, statement := range statements {
		db.exec(statement)
	}
}

// What passes is not taken for a server without TLS, although the first attempt to connect was one by TLS.
func TestPassingErrorsWithoutSSLMode(t *testing.T) {
	s := server(t)
	db := admin(t, s)
	schema := freshSchema(t, s)
	open(t, urlOf(s, schema)) // the tables
	role(t, db, "limited", "ALTER ROLE limited CONNECTION LIMIT 1", "GRANT USAGE ON SCHEMA "+schema[len("schema="):]+" TO limited",
		"GRANT ALL ON ALL TABLES IN SCHEMA "+schema[len("schema="):]+" TO limited")
	limited := plainURL(s, "limited", "secret-of-a-role", schema)
	first := open(t, limited)
	_, err := postgres.Open(ctx10(t), limited)
	if !errors.Is(err, anylock.ErrUnavailable) || errors.Is(err, anylock.ErrInvalid) {
		t.Errorf("at the role's limit: %v", err)
	}
	if text := fmt.Sprint(err); strings.Contains(text, "TLS") || strings.Contains(text, "\n") {
		t.Errorf("at the role's limit: %s", text)
	}
	_ = first.Close()
	eventually(t, 5*time.Second, "there is room again", func() bool {
		b, err := postgres.Open(ctx10(t), limited)
		if err == nil {
			_ = b.Close()
		}
		return err == nil
	})
}

func TestPoolersFinalRefusals(t *testing.T) {
	s := containers.Postgres(t)
	bouncer := containers.PgBouncer(t, s, "default_pool_size = 2")
	for what, wrong := range map[string]string{
		"password": strings.Replace(urlOf(bouncer), bouncer.Password, "wrong-secret", 1),
		"user":     plainURL(bouncer, "nobody-there", "wrong-secret"),
	} {
		_, err := postgres.Open(ctx10(t), wrong)
		if !errors.Is(err, anylock.ErrInvalid) {
			t.Errorf("a wrong %s: %v", what, err)
		}
		if strings.Contains(fmt.Sprint(err), "wrong-secret") {
			t.Errorf("the password is in the error: %v", err)
		}
	}
}

// A lock that nobody has is not held, only because this user may not change its row.
func TestRowLevelSecurityIsNoContention(t *testing.T) {
	s := server(t)
	db := admin(t, s)
	param := freshSchema(t, s)
	schema := param[len("schema="):]
	b := open(t, urlOf(s, param))
	g := must(b.Acquire(ctx10(t), request("n")))(t)
	if err := b.Release(ctx10(t), []anylock.Grant{g})[0]; err != nil {
		t.Fatal(err)
	}
	role(t, db, "onlooker", "GRANT USAGE ON SCHEMA "+schema+" TO onlooker", "GRANT ALL ON ALL TABLES IN SCHEMA "+schema+" TO onlooker",
		"ALTER TABLE "+schema+".anylock ENABLE ROW LEVEL SECURITY", "CREATE POLICY looks ON "+schema+".anylock FOR SELECT USING (true)")
	restricted := open(t, plainURL(s, "onlooker", "secret-of-a-role", param))
	_, err := restricted.Acquire(ctx10(t), request("n"))
	if !errors.Is(err, anylock.ErrInvalid) || !strings.Contains(fmt.Sprint(err), "row level security") {
		t.Errorf("a free lock: %v", err)
	}
	must(b.Acquire(ctx10(t), request("n")))(t)
	_, err = restricted.Acquire(ctx10(t), request("n"))
	if !errors.Is(err, anylock.ErrHeld) {
		t.Errorf("a lock that somebody has: %v", err)
	}
}

func poolOf(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func TestExhaustedPoolOfTheUsers(t *testing.T) {
	s := server(t)
	pool := poolOf(t, urlOf(s, "pool_max_conns=1"))
	b := must(postgres.New(pool, postgres.WithSchema(freshSchema(t, s)[len("schema="):])))(t)
	l := must(anylock.New(b, anylock.WithRequestTimeout(time.Second), anylock.WithLogger(nil)))(t)
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	must(0, must(l.TryAcquire(ctx10(t), "n"))(t).Release(ctx10(t)))(t)
	conn := must(pool.Acquire(ctx10(t)))(t)
	_, err := l.TryAcquire(ctx10(t), "n")
	conn.Release()
	if !errors.Is(err, anylock.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), "connections of the pool") {
		t.Errorf("with the pool exhausted: %v", err)
	}
}

func TestClosedPool(t *testing.T) {
	s := server(t)
	pool, err := pgxpool.New(context.Background(), urlOf(s))
	if err != nil {
		t.Fatal(err)
	}
	b := must(postgres.New(pool, postgres.WithSchema(freshSchema(t, s)[len("schema="):])))(t)
	g := must(b.Acquire(ctx10(t), request("n")))(t)
	pool.Close()
	_, err = b.Acquire(ctx10(t), request("m"))
	for what, err := range map[string]error{
		"Acquire": err, "Renew": b.Renew(ctx10(t), []anylock.Grant{g})[0].Err, "Release": b.Release(ctx10(t), []anylock.Grant{g})[0],
	} {
		if !errors.Is(err, anylock.ErrClosed) {
			t.Errorf("%s over a closed pool: %v", what, err)
		}
	}
	_ = b.Close()
}

// In another encoding than UTF8 two names may be one, or one two.
func TestClientEncodingOfARole(t *testing.T) {
	s := server(t)
	db := admin(t, s)
	param := freshSchema(t, s)
	schema := param[len("schema="):]
	first := open(t, urlOf(s, param))
	must(first.Acquire(ctx10(t), request("Müller")))(t)
	role(t, db, "latin", "ALTER ROLE latin SET client_encoding = 'LATIN1'", "GRANT USAGE ON SCHEMA "+schema+" TO latin",
		"GRANT ALL ON ALL TABLES IN SCHEMA "+schema+" TO latin")
	latin := plainURL(s, "latin", "secret-of-a-role")
	for _, mode := range []postgres.Mode{postgres.Lease, postgres.RowLock} {
		b := must(postgres.New(poolOf(t, latin), postgres.WithSchema(schema), postgres.WithMode(mode), postgres.WithPrefix(string(mode))))(t)
		t.Cleanup(func() { _ = b.Close() })
		if _, err := b.Acquire(ctx10(t), request("Müller")); mode == postgres.Lease && !errors.Is(err, anylock.ErrInvalid) {
			t.Errorf("%s, over a pool of that role: %v", mode, err)
		}
	}
	conn := must(pgx.Connect(ctx10(t), latin))(t)
	defer func() { _ = conn.Close(context.Background()) }()
	tx := must(conn.Begin(ctx10(t)))(t)
	if err := postgres.LockTx(ctx10(t), tx, "Müller", postgres.WithSchema(schema), postgres.WithTable("of_rows")); !errors.Is(err, anylock.ErrInvalid) ||
		!strings.Contains(err.Error(), "client_encoding") {
		t.Errorf("LockTx in a session of that role: %v", err)
	}
	_, err := open(t, latin+param).Acquire(ctx10(t), request("Müller"))
	if !errors.Is(err, anylock.ErrHeld) {
		t.Errorf("by a URL of that role: %v", err)
	}
}

func TestServerSettingsInTheURL(t *testing.T) {
	s := server(t)
	settings := "statement_timeout=2000&lock_timeout=1500&timezone=Europe/Berlin&idle_session_timeout=60000"
	for _, mode := range []string{"lease", "rowlock", "advisory"} {
		l := locker(t, urlOf(s, freshSchema(t, s), "mode="+mode, settings))
		must(0, must(l.Acquire(ctx10(t), "n"))(t).Release(ctx10(t)))(t)
	}
	_, err := postgres.Open(ctx10(t), urlOf(s, "client_encoding=LATIN1"))
	if !errors.Is(err, anylock.ErrInvalid) {
		t.Errorf("client_encoding=LATIN1: %v", err)
	}
}

// Users with different search paths do not get a table each, unnoticed.
func TestSearchPathsThatDiffer(t *testing.T) {
	s := containers.Postgres(t)
	db := admin(t, s)
	db.exec("CREATE SCHEMA one")
	db.exec("CREATE SCHEMA two")
	open(t, urlOf(s, "search_path=one"))
	_, err := postgres.Open(ctx10(t), urlOf(s, "search_path=two"))
	if !errors.Is(err, anylock.ErrInvalid) || !strings.Contains(fmt.Sprint(err), "schema=one") {
		t.Errorf("with a table elsewhere: %v", err)
	}
	open(t, urlOf(s, "search_path=two", "schema=two")) // on purpose
}

// However the schema is written, a release wakes those who wait for the same row.
func TestSpellingsOfTheSchemaWakeEachOther(t *testing.T) {
	s := containers.Postgres(t)
	named, unnamed := open(t, urlOf(s, "schema=public")), open(t, urlOf(s))
	for _, pair := range [][2]*postgres.Backend{{named, unnamed}, {unnamed, named}} {
		g := must(pair[0].Acquire(ctx10(t), request("n")))(t)
		wake := must(pair[1].Watch(ctx10(t), "n"))(t)
		if err := pair[0].Release(ctx10(t), []anylock.Grant{g})[0]; err != nil {
			t.Fatal(err)
		}
		select {
		case <-wake:
		case <-time.After(5 * time.Second):
			t.Error("not woken")
		}
	}
}

// A row that somebody has locked costs its own renewal, and not that of the others in the batch.
func TestRenewalSkipsALockedRow(t *testing.T) {
	s := server(t)
	db := admin(t, s)
	param := freshSchema(t, s)
	b := open(t, urlOf(s, param))
	var grants []anylock.Grant
	for i := range 20 {
		grants = append(grants, must(b.Acquire(ctx10(t), request(fmt.Sprint(i))))(t))
	}
	tx := must(db.Begin(ctx10(t)))(t)
	defer func() { _ = tx.Rollback(ctx10(t)) }()
	must(tx.Exec(ctx10(t), "SELECT FROM "+param[len("schema="):]+".anylock WHERE name = '7' FOR UPDATE"))(t)
	for i, r := range b.Renew(ctx10(t), grants) {
		switch {
		case i == 7 && !errors.Is(r.Err, anylock.ErrUnavailable):
			t.Errorf("the one that is locked: %v", r.Err)
		case i != 7 && r.Err != nil:
			t.Errorf("%d: %v", i, r.Err)
		}
	}
}

// While the connection for LISTEN is down, those who wait are woken at the pace of polling.
func TestWaitersPollWhileTheListenerIsDown(t *testing.T) {
	s := server(t)
	db := admin(t, s)
	param := freshSchema(t, s)
	b := open(t, urlOf(s, param, "application_name=listens"))
	wake := must(b.Watch(ctx10(t), "n"))(t)
	const end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'listens'"
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() { // it is cut off again and again
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				_, _ = db.Exec(context.Background(), end)
			}
		}
	}()
	for range 5 {
		select {
		case <-wake:
		case <-time.After(5 * time.Second):
			t.Fatal("nobody wakes those who wait while the listener is down")
		}
	}
	close(stop)
	<-stopped
}

// No error of Open contains a part of a password, wherever it stands and however it was not escaped.
func TestNoSecretInErrorsOfOpen(t *testing.T) {
	s := server(t)
	const mark = "S3CR3T"
	for _, secret := range []string{mark, mark + "@" + mark, mark + "&" + mark, mark + "?" + mark + "=1", mark + "/" + mark, mark + "#" + mark,
		"/" + mark, "1234/" + mark, mark + ":" + mark, mark + "%zz" + mark, mark + " " + mark, mark + "\n" + mark, mark + "&ttl=" + mark, mark + "," + mark, "[" + mark} {
		for _, url := range []string{
			"postgres://user:" + secret + "@" + s.Addr() + "/postgres", "postgres://" + secret + "@" + s.Addr() + "/postgres",
			"postgres://user@" + s.Addr() + "/postgres?password=" + secret, "postgres://user@" + s.Addr() + "/postgres?sslmode=disable&password=" + secret,
			"postgres://user:" + secret + "@nowhere.invalid/postgres?connect_timeout=1", "postgres://user@" + s.Addr() + "/postgres?sslpassword=" + secret + "&sslmode=require",
			"postgres://user@h1," + s.Addr() + "/postgres?passfile=/no/such/file&password=" + secret,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			l, err := anylock.Open(ctx, url)
			cancel()
			if err == nil {
				_ = l.Close(t.Context())
				t.Errorf("%q was opened", url)
			} else if strings.Contains(err.Error(), mark) && !strings.HasPrefix(url, "postgres://"+secret) /* a name */ {
				t.Errorf("%q: %v", url, err)
			}
		}
	}
}

// A process that lives shortly gets as far as a statement of its sweep.
func TestSweepOfAShortLife(t *testing.T) {
	s := server(t)
	param := freshSchema(t, s)
	schema := param[len("schema="):]
	db := admin(t, s)
	b := must(postgres.Open(ctx10(t), urlOf(s, param)))(t)
	db.exec("INSERT INTO " + schema + ".anylock (name, version, expires_at) SELECT 'old-'||i, 1, clock_timestamp() - interval '3 hours' FROM generate_series(1, 800) AS i")
	postgres.SweepInBackground(b)
	must(0, b.Close())(t)
	if n := value[int](db, "SELECT count(*)::int FROM "+schema+".anylock WHERE name LIKE 'old-%'"); n != 0 {
		t.Errorf("%d old rows are left after a process that has swept while it closed", n)
	}
}

// With the right policies, or a trigger that looks on, contention is contention.
func TestGuardedTableUnderContention(t *testing.T) {
	s := server(t)
	db := admin(t, s)
	param := freshSchema(t, s)
	schema := param[len("schema="):]
	open(t, urlOf(s, param))
	role(t, db, "guarded", "GRANT USAGE ON SCHEMA "+schema+" TO guarded", "GRANT ALL ON ALL TABLES IN SCHEMA "+schema+" TO guarded",
		"ALTER TABLE "+schema+".anylock ENABLE ROW LEVEL SECURITY", "CREATE POLICY all_of_it ON "+schema+".anylock USING (true) WITH CHECK (true)")
	var running sync.WaitGroup
	for range 8 {
		b := open(t, plainURL(s, "guarded", "secret-of-a-role", param))
		running.Go(func() {
			for range 150 {
				g, err := b.Acquire(ctx10(t), request("hot"))
				if err == nil {
					err = b.Release(ctx10(t), []anylock.Grant{g})[0]
				}
				if errors.Is(err, anylock.ErrInvalid) {
					t.Errorf("a hot lock: %v", err)
					return
				}
			}
		})
	}
	running.Wait()
}
