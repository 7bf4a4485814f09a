package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/backend/postgres"
)

func ExampleNew() { //nolint:testableexamples // it needs a server
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@db.example.com/shop")
	if err != nil {
		log.Fatal(err)
	}
	backend, err := postgres.New(pool, postgres.WithSchema("locks"))
	if err != nil {
		log.Fatal(err)
	}
	locks, err := anylock.New(backend)
	if err != nil {
		log.Fatal(err)
	}
	err = locks.Do(ctx, "nightly-report", func(ctx context.Context, lease *anylock.Lease) error {
		_, err := pool.Exec(ctx, "INSERT INTO reports (day, token) VALUES (current_date, $1)", int64(lease.Token()))
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleLockTx() { //nolint:testableexamples // it needs a server
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@db.example.com/shop")
	if err != nil {
		log.Fatal(err)
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := postgres.LockTx(ctx, tx, "invoice-numbers"); err != nil {
			return err // errors.Is(err, anylock.ErrHeld): somebody else had it for too long
		}
		_, err := tx.Exec(ctx, "INSERT INTO invoices (number) SELECT max(number) + 1 FROM invoices")
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}

// Without a lock: a version column in your own table, checked when the row is written. Nobody waits for anybody; who comes
// too late reads again. It is the better choice when conflicts are rare and the work between reading and writing is short
// and can be done twice.
func Example_versionColumn() { //nolint:testableexamples // it needs a server; TestVersionColumn runs the same
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, "postgres://app@db.example.com/shop")
	if err != nil {
		log.Fatal(err)
	}
	if err := withdraw(ctx, pool, 7, 100); err != nil {
		log.Fatal(err)
	}
}

var errTooLittle = errors.New("there is not enough in the account")

// withdraw takes an amount out of account (id, balance, version).
func withdraw(ctx context.Context, db *pgxpool.Pool, id, amount int64) error {
	for ctx.Err() == nil {
		var balance, version int64
		err := db.QueryRow(ctx, "SELECT balance, version FROM account WHERE id = $1", id).Scan(&balance, &version)
		if err != nil {
			return err
		}
		if balance < amount {
			return errTooLittle
		}
		done, err := db.Exec(ctx, "UPDATE account SET balance = $3, version = version + 1 WHERE id = $1 AND version = $2",
			id, version, balance-amount)
		if err != nil {
			return err
		}
		if done.RowsAffected() == 1 {
			return nil
		}
		// Somebody else has written the row since it was read: look at it again.
	}
	return ctx.Err()
}

func TestVersionColumn(t *testing.T) {
	s := server(t)
	schema := strings.TrimPrefix(freshSchema(t, s), "schema=")
	db := must(pgxpool.New(context.Background(), urlOf(s, "search_path="+schema)))(t)
	defer db.Close()
	ctx := ctx10(t)
	for _, sql := range []string{
		"CREATE SCHEMA " + schema,
		"CREATE TABLE account (id bigint PRIMARY KEY, balance bigint NOT NULL, version bigint NOT NULL DEFAULT 0)",
		"INSERT INTO account VALUES (7, 1000)",
	} {
		must(db.Exec(ctx, sql))(t)
	}
	var refused int
	var mu sync.Mutex
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for range 20 {
				err := withdraw(ctx, db, 7, 10)
				if errors.Is(err, errTooLittle) {
					mu.Lock()
					refused++
					mu.Unlock()
				} else if err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	var left string
	must(0, db.QueryRow(ctx, "SELECT balance || ' ' || version FROM account").Scan(&left))(t)
	if got := fmt.Sprint(left, " ", refused); got != "0 100 60" {
		t.Errorf("balance, version and refusals are %s, want 0 100 60", got)
	}
}
