package postgres

import (
	"context"
	_ "embed"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/anylock/anylock"
)

//go:embed sql/token.sql
var tokenSQL string

// tokenStatement counts if a condition holds.
func (c config) tokenStatement(condition string) string {
	return c.fill(strings.Replace(tokenSQL, "{free}", condition, 1))
}

// tokenArgs are for a lock that this connection has, or tries to get next.
func tokenArgs(c config, req anylock.Request, conn *connection) []any {
	return []any{
		c.prefix + req.Name, req.Holder, int64(max(req.MinToken, 0)), c.inUse(req.TTL).Microseconds(), int64(conn.PgConn().PID()),
	}
}

// nextToken is for a grant whose lock is held already: the counter's commit comes before the grant is known to anybody,
// so no crash can make it give out the same token again.
func (d *database) nextToken(ctx context.Context, req anylock.Request, conn *connection) (anylock.Token, error) {
	var token int64
	err := d.run(ctx, statement{
		sql:        d.tokenSQL,
		args:       tokenArgs(d.config, req, conn),
		each:       func(row pgx.CollectableRow) error { return row.Scan(&token) },
		repeatable: true, // a token that nobody uses is no harm
	})
	if err == nil && token <= 0 {
		err = errCounter
	}
	return anylock.Token(token), err
}

var errCounter = errors.New("the counter is not positive; something else has written it")

// holder returns the label of who has a lock, by a statement that compares the session that was granted it last with the one
// that has it: it may be LockTx that has it, or other code. Not to know is no error.
func (d *database) holder(ctx context.Context, sql string, args ...any) (label string) {
	err := d.run(ctx, statement{
		sql:        sql,
		args:       args,
		each:       func(row pgx.CollectableRow) error { return row.Scan(&label) },
		repeatable: true,
	})
	if err != nil {
		return ""
	}
	return label
}
