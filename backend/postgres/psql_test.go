package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/anylock/anylock"
)

// TestLegacyCodeInPsql has the transaction that teams write by hand, in psql, against a lease on the same row.
func TestLegacyCodeInPsql(t *testing.T) {
	s := server(t)
	if !s.CanFault() {
		t.Skip("psql runs inside the server's container, and there is none")
	}
	schema := freshSchema(t, s)
	table := strings.TrimPrefix(schema, "schema=") + ".account"
	open(t, urlOf(s, schema, "mode=rowlock"))
	db := admin(t, s)
	db.exec("CREATE TABLE " + table + " (id bigint PRIMARY KEY, n bigint NOT NULL)")
	db.exec("INSERT INTO " + table + " VALUES (7, 0)")
	l := locker(t, urlOf(s, schema, "mode=rowlock", "table="+table, "column=id"))
	ctx := ctx10(t)
	psql := func(between string) chan error {
		done := make(chan error, 1)
		go func() {
			_, err := s.Exec(ctx, "psql", "-v", "ON_ERROR_STOP=1", "-d", s.URL()+"/postgres?application_name=legacy",
				"-c", "BEGIN", "-c", "SELECT n FROM "+table+" WHERE id = 7 FOR UPDATE", "-c", between,
				"-c", "UPDATE "+table+" SET n = n + 1 WHERE id = 7", "-c", "COMMIT")
			done <- err
		}()
		return done
	}
	waitsFor := func(event string) {
		eventually(t, 5*time.Second, "psql to wait for "+event, func() bool {
			return value[int64](db, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'legacy' AND wait_event_type || wait_event ILIKE $1", event) == 1
		})
	}
	count := func() int64 { return value[int64](db, "SELECT n FROM "+table+" WHERE id = 7") }

	lease := must(l.Acquire(ctx, "7"))(t)
	legacy := psql("SELECT 1")
	waitsFor("lock%")
	db.exec("UPDATE " + table + " SET n = n + 10 WHERE id = 7") // what the lease protects
	if n := count(); n != 10 {
		t.Errorf("psql went on beside the lease: n = %d", n)
	}
	must(0, lease.Release(ctx))(t)
	must(0, <-legacy)(t)
	if n := count(); n != 11 {
		t.Errorf("n = %d after the lease and psql", n)
	}

	legacy = psql("SELECT pg_sleep(1)")
	waitsFor("%pgsleep")
	if _, err := l.TryAcquire(ctx, "7"); !errors.Is(err, anylock.ErrHeld) {
		t.Errorf("while psql has the row: %v", err)
	}
	lease = must(l.Acquire(ctx, "7"))(t)
	if n := count(); n != 12 {
		t.Errorf("the lease was granted before psql had committed: n = %d", n)
	}
	must(0, <-legacy)(t)
	must(0, lease.Release(ctx))(t)
}
