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
// lock whose row is missing is a [*MissingRowError]. URL: table=TABLE and column=COLUMN.
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
	return &MissingRowError{Table: c.adopt.Table, Spelled: *spelled}
}

// MissingRowError says that the adopted table has no row that is called as the lock is. It matches [anylock.ErrInvalid], as
// wrong credentials do, but it is an answer to those who made the name, and no fault of the configuration.
type MissingRowError struct {
	// Table is the adopted table, as in [Adopted].
	Table string
	// Spelled is what the table calls the row that is meant, where the lock's name is another spelling of it: 7 for 007.
	Spelled string
	// Err is the server's error for a name that no row can have, such as "seven" in a column of numbers. It may be nil.
	Err error
}

func (e *MissingRowError) Error() string {
	switch {
	case e.Spelled != "":
		return fmt.Sprintf("the row of the table %s that is meant is called %q there; locks need the very same name", e.Table, e.Spelled)
	case e.Err != nil:
		return fmt.Sprintf("the table %s cannot have a row of this name: %v", e.Table, e.Err)
	}
	return fmt.Sprintf("the table %s has no row of this name; an adopted row must be there before it is locked", e.Table)
}

// Is makes a MissingRowError match [anylock.ErrInvalid].
func (*MissingRowError) Is(target error) bool { return target == anylock.ErrInvalid }

// Unwrap gives the server's error.
func (e *MissingRowError) Unwrap() error { return e.Err }

func (a *Adopted) missing() error { return &MissingRowError{Table: a.Table} }

// explain tells errors about the adopted table from those about the own ones, whose names can be any text.
func (c config) explain(err error) error {
	if c.adopt == nil || !isBadValue(err) && c.isOwnTable(err) {
		return err
	}
	return c.adopt.explain(err)
}

// isBadValue reports a data exception, class 22 of the SQLSTATEs: in a statement that looks for an adopted row all of them
// come from the name, which cannot be read as a value of the column.
func isBadValue(err error) bool {
	code := sqlState(err)
	return strings.HasPrefix(code, "22") && code != untranslatableChar
}

func (a *Adopted) explain(err error) error {
	if isBadValue(err) {
		return &MissingRowError{Table: a.Table, Err: err}
	}
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
