package postgres

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/anylock/anylock"
)

// The row without a name, which no lock has, says which mode the table is for.
const (
	// claimSQL sets it, unless another client was quicker, and returns it.
	claimSQL = "INSERT INTO {locks} AS l (name, version, holder, expires_at) VALUES ('', 1, $1::text, 'infinity') " +
		"ON CONFLICT (name) DO UPDATE SET version = l.version RETURNING holder"
	// claimedSQL is that mode, or an empty text if none has used the table yet.
	claimedSQL = "coalesce((SELECT holder FROM {locks} WHERE name = ''), '')"
)

// claimFor is how long a client relies on what the table said. It bounds how long one of the old mode that was forgotten goes
// on after the table was given to another mode.
const claimFor = time.Minute

// claim is this client's word that it uses its table in its mode. The modes do not exclude each other, so a table is for one.
type claim struct {
	until atomic.Int64 // in nanoseconds since 1970
}

// check makes sure that the table is for our mode. Mostly it asks nobody.
func (c *claim) check(ctx context.Context, d *database) error {
	now := time.Now()
	if d.config.mixed || now.UnixNano() < c.until.Load() {
		return nil
	}
	used := ""
	read := func(row pgx.CollectableRow) error { return row.Scan(&used) }
	err := d.run(ctx, statement{sql: d.config.fill("SELECT " + claimedSQL), each: read, repeatable: true})
	if err == nil && used == "" {
		err = d.run(ctx, statement{sql: d.config.fill(claimSQL), args: []any{string(d.config.mode)}, each: read, repeatable: true})
	}
	if err != nil {
		return err
	}
	if err := d.config.checkMode(used); err != nil {
		return err
	}
	c.until.Store(now.Add(claimFor).UnixNano())
	return nil
}

// checkMode returns an error if the table is for another mode.
func (c config) checkMode(used string) error {
	if c.mixed || used == "" || used == string(c.mode) {
		return nil
	}
	table := c.fill("{locks}")
	return anylock.Invalidf("the table %s is used by mode=%s, which excludes nobody in mode=%s. To change the mode stop all processes "+
		"that use the old one, let its locks end, and run: DELETE FROM %s WHERE name = ''. To keep both give each a table or schema of "+
		"its own, or set mixed=true if the same work takes a lock of each", table, used, c.mode, table)
}
