package postgres

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/anylock/anylock"
)

// Adopted are rows of a table that the application has already, and that other code locks by SELECT ... FOR UPDATE. The
// row of a lock is the one whose column has the lock's name as its value.
type Adopted struct {
	// Table is the table, with its schema before a dot if it is not on the search path.
	Table string
	// Column is a column that tells the rows apart. Its cast to text is the lock's name: 42, and not 042.
	Column string
	// Where is used instead of Column: a condition on the table with $1 for the lock's name, as text, such as
	// "tenant = split_part($1, '/', 1) AND id = split_part($1, '/', 2)::bigint". All rows that it finds are locked.
	// Several names may find the same rows, and do not exclude each other then: let all callers build the name alike.
	Where string
}

// WithAdopted makes the leases of [RowLock], and [LockTx], exclude code that locks these rows by SELECT ... FOR UPDATE. A
// lock whose row is missing is an error. URL: table=TABLE and column=COLUMN.
func WithAdopted(a Adopted) Option { return func(c *config) { c.adopt = &a } }

func (a *Adopted) check() error {
	switch {
	case a.Table == "":
		return anylock.Invalidf("column= needs table=, the table whose rows are adopted")
	case a.Column == "" && a.Where == "":
		return anylock.Invalidf("table= needs column=, the column that has the locks' names")
	case a.Where != "" && a.Column != "":
		return anylock.Invalidf("the adopted rows have a Column and a Where; choose one")
	case a.Where != "" && !strings.Contains(a.Where, "$1"):
		return anylock.Invalidf("the condition Where has no $1, which stands for the lock's name")
	case strings.ContainsRune(a.Table+a.Column+a.Where, 0):
		return anylock.Invalidf("table= and column= cannot contain NUL")
	}
	return nil
}

func (a *Adopted) table() string {
	return pgx.Identifier(strings.SplitN(a.Table, ".", 2)).Sanitize()
}

func (a *Adopted) condition() string {
	if a.Where != "" {
		return "(" + a.Where + ")"
	}
	return pgx.Identifier{a.Column}.Sanitize() + " = $1"
}

// spelled is how the table writes the name of a row, if that can be told: as an SQL expression.
func (a *Adopted) spelled() string {
	if a.Where != "" {
		return "NULL::text"
	}
	return pgx.Identifier{a.Column}.Sanitize() + "::text"
}

// checkSpelling makes sure that one row has one name: under another, such as 042 for 42, its lock would be another one.
func (c config) checkSpelling(name string, spelled *string) error {
	if spelled == nil || *spelled == name {
		return nil
	}
	return anylock.Invalidf("the row of the table %s that is meant is called %q there; locks need the very same name", c.adopt.Table, *spelled)
}

func (a *Adopted) missing() error {
	return anylock.Invalidf("the table %s has no row of this name; an adopted row must be there before it is locked", a.Table)
}

// explain tells errors about the adopted table from those about the own ones.
func (c config) explain(err error) error {
	if c.adopt == nil || c.isOwnTable(err) {
		return err
	}
	return c.adopt.explain(err)
}

func (a *Adopted) explain(err error) error {
	switch sqlState(err) {
	case undefinedTable, invalidSchemaName:
		return anylock.Invalid(err, fmt.Sprintf("the adopted table %s is missing; correct table=", a.Table))
	case undefinedColumn:
		return anylock.Invalid(err, fmt.Sprintf("the adopted table %s has no such column; correct column=", a.Table))
	case insufficientPrivilege:
		return anylock.Invalid(err, fmt.Sprintf("the user may not lock rows of the adopted table %s; grant SELECT and UPDATE on it", a.Table))
	}
	return err
}
