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

func tokenArgs(c config, req anylock.Request) []any {
	return []any{c.prefix + req.Name, req.Holder, int64(max(req.MinToken, 0)), c.inUse(req.TTL).Microseconds()}
}

// nextToken is for a grant whose lock is held already: the counter's commit comes before the grant is known to anybody,
// so no crash can make it give out the same token again.
func (d *database) nextToken(ctx context.Context, req anylock.Request) (anylock.Token, error) {
	var token int64
	err := d.run(ctx, statement{
		sql:        d.tokenSQL,
		args:       tokenArgs(d.config, req),
		each:       func(row pgx.CollectableRow) error { return row.Scan(&token) },
		repeatable: true, // a token that nobody uses is no harm
	})
	if err == nil && token <= 0 {
		err = errCounter
	}
	return anylock.Token(token), err
}

var errCounter = errors.New("the counter is not positive; something else has written it")

// lastHolder is the label of whoever was granted the name last.
func (d *database) lastHolder(ctx context.Context, name string) (holder string, err error) {
	err = d.run(ctx, statement{
		sql:        d.config.fill("SELECT holder FROM {locks} WHERE name = $1::text"),
		args:       []any{d.config.prefix + name},
		each:       func(row pgx.CollectableRow) error { return row.Scan(&holder) },
		repeatable: true,
	})
	return holder, err
}
