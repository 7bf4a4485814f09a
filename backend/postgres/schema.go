package postgres

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/anylock/anylock"
)

//go:embed schema.sql
var schemaSQL string

// Schema returns the statements that create the backend's tables, for teams that run migrations. [WithSchema] and
// [WithTable] apply. The user of the locks needs SELECT, INSERT, UPDATE and DELETE on the tables, and USAGE on the schema.
func Schema(opts ...Option) (string, error) {
	c, err := configure(defaults(), opts)
	if err != nil {
		return "", err
	}
	text := c.fill(schemaSQL)
	if c.schema != "" {
		text = "CREATE SCHEMA IF NOT EXISTS " + pgx.Identifier{c.schema}.Sanitize() + ";\n\n" + text
	}
	return text, nil
}

// durable is a condition that is true, and makes the commit wait for the disk where synchronous_commit is off: a grant,
// a renewal or a token that a crash undoes would be given out again.
const durable = "set_config('synchronous_commit', CASE current_setting('synchronous_commit') " +
	"WHEN 'off' THEN 'local' ELSE current_setting('synchronous_commit') END, true) <> 'off'"

// channel is the one that all clients notify and listen on; the payload tells which lock it is about.
const channel = "anylock"

// fill completes a statement.
func (c config) fill(sql string) string {
	name := func(table string) string {
		if c.schema == "" {
			return pgx.Identifier{table}.Sanitize()
		}
		return pgx.Identifier{c.schema, table}.Sanitize()
	}
	return strings.NewReplacer("{locks}", name(c.table), "{rows}", name(c.table+rowsSuffix),
		"{durable}", durable, "{channel}", channel).Replace(sql)
}

// isOwnTable reports whether an error is about one of the backend's own tables.
func (c config) isOwnTable(err error) bool {
	text := err.Error()
	return strings.Contains(text, c.table) && !strings.Contains(text, c.adopt.Table)
}

// refuseSecondTable returns an error when no schema was named, the table is not on the search path, and another schema has
// one: users with different search paths would each get a table, and each the lock.
func (d *database) refuseSecondTable(ctx context.Context, tx pgx.Tx) error {
	if d.config.schema != "" {
		return nil
	}
	var elsewhere *string
	err := tx.QueryRow(ctx, `SELECT min(relnamespace::regnamespace::text) FROM pg_class AS c
		WHERE relname = $1 AND relkind IN ('r', 'p') AND NOT pg_table_is_visible(oid) AND to_regclass($2) IS NULL
			AND EXISTS (SELECT FROM pg_attribute WHERE attrelid = c.oid AND attname = 'expires_at')`,
		pgx.QueryExecModeExec, d.config.table, d.config.fill("{locks}")).Scan(&elsewhere)
	if err == nil && elsewhere != nil {
		err = anylock.Invalidf("the schema %s has a table %s already, which is not on the search path of this user: write schema=%s to use "+
			"it, or another schema= for locks that have nothing to do with those", *elsewhere, d.config.table, *elsewhere)
	}
	return err
}

// createLock is the advisory lock of those who create tables: CREATE TABLE IF NOT EXISTS alone fails when it is raced.
var createLock = hash64("anylock", "create")

// createTables makes what is missing.
func (d *database) createTables(ctx context.Context) error {
	missing := func(err error) error {
		return anylock.Invalid(err, fmt.Sprintf("the table %s is missing and cannot be created; let a user with the right to create "+
			"tables run what postgres.Schema prints, or correct schema= and table=", d.config.fill("{locks}")))
	}
	if !d.config.create {
		return missing(fmt.Errorf("create=false"))
	}
	err := pgx.BeginTxFunc(ctx, d.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		run := func(sql string, args ...any) error {
			_, err := tx.Exec(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...)
			return err
		}
		if err := run("SELECT pg_advisory_xact_lock($1)", createLock); err != nil {
			return err
		}
		if d.config.schema != "" {
			var absent bool
			if err := tx.QueryRow(ctx, "SELECT to_regnamespace($1) IS NULL", pgx.QueryExecModeExec,
				pgx.Identifier{d.config.schema}.Sanitize()).Scan(&absent); err != nil {
				return err
			}
			if absent {
				if err := run("CREATE SCHEMA " + pgx.Identifier{d.config.schema}.Sanitize()); err != nil {
					return err
				}
			}
		}
		if err := d.refuseSecondTable(ctx, tx); err != nil {
			return err
		}
		for statement := range strings.SplitSeq(strings.TrimSpace(d.config.fill(schemaSQL)), ";\n") {
			if err := run(strings.TrimSuffix(statement, ";")); err != nil {
				return err
			}
		}
		return nil
	})
	switch sqlState(err) {
	case insufficientPrivilege, invalidSchemaName:
		return missing(err)
	}
	return err
}
