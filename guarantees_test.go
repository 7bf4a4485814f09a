package anylock_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	goredis "github.com/redis/go-redis/v9"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/backend/memory"
	"github.com/anylock/anylock/backend/postgres"
	"github.com/anylock/anylock/backend/redis"
)

// TestGuarantees compares the table in docs/guarantees.md with what the backends say of themselves.
func TestGuarantees(t *testing.T) {
	overRedis := func(client goredis.UniversalClient) anylock.Backend {
		t.Cleanup(func() { _ = client.Close() })
		b, err := redis.New(client)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	type column struct {
		title   string
		backend anylock.Backend
	}
	columns := []column{
		{"memory", memory.NewStore(anylock.WakeQueue).Client()},
		{"redis, one server", overRedis(goredis.NewClient(&goredis.Options{}))},
		{"redis, Sentinel", overRedis(goredis.NewFailoverClient(&goredis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"localhost:1"}}))},
		{"redis, Cluster", overRedis(goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{"localhost:1"}}))},
	}
	pool, err := pgxpool.New(t.Context(), "postgres://localhost:1/none")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for _, mode := range []postgres.Mode{postgres.Lease, postgres.RowLock, postgres.Advisory} {
		b, err := postgres.New(pool, postgres.WithMode(mode))
		if err != nil {
			t.Fatal(err)
		}
		columns = append(columns, column{"postgres, " + string(mode), b})
	}
	rows := []struct {
		title string
		value func(anylock.Guarantees) any
	}{
		{"exclusion reaches", func(g anylock.Guarantees) any { return g.Exclusion }},
		{"tokens grow within", func(g anylock.Guarantees) any { return g.Fencing }},
		{"first in, first out", func(g anylock.Guarantees) any { return yesNo(g.FIFO) }},
		{"waiters are woken by", func(g anylock.Guarantees) any { return g.Wake }},
		{"expiry by the clock of the", func(g anylock.Guarantees) any { return g.Clock }},
		{"one hold costs a", func(g anylock.Guarantees) any { return g.HoldCost }},
	}
	for f := anylock.HolderCrash; f <= anylock.StoreClockStep; f <<= 1 {
		rows = append(rows, struct {
			title string
			value func(anylock.Guarantees) any
		}{"survives " + f.String(), func(g anylock.Guarantees) any { return yesNo(g.Survives&f != 0) }})
	}

	var table strings.Builder
	table.WriteString("| |")
	for _, c := range columns {
		table.WriteString(" " + c.title + " |")
	}
	table.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, r := range rows {
		table.WriteString("| " + r.title + " |")
		for _, c := range columns {
			fmt.Fprintf(&table, " %v |", r.value(c.backend.Describe().Guarantees))
		}
		table.WriteString("\n")
	}
	generated(t, "docs/guarantees.md", "guarantees", table.String())
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
