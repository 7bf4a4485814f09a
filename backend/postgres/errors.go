package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/anylock/anylock"
)

// SQLSTATEs that decide something here; the names are those of the manual.
const (
	undefinedTable        = "42P01"
	undefinedColumn       = "42703"
	insufficientPrivilege = "42501"
	readOnlyTransaction   = "25006"
	serializationFailure  = "40001"
	deadlockDetected      = "40P01"
	lockNotAvailable      = "55P03"
	queryCanceled         = "57014"
	undefinedStatement    = "26000"
	duplicateStatement    = "42P05"
	invalidTextValue      = "22P02"
	numericOutOfRange     = "22003"
	featureNotSupported   = "0A000"
	untranslatableChar    = "22P05"
	undefinedFunction     = "42883"
	invalidPassword       = "28P01"
	invalidAuthorization  = "28000"
	invalidCatalogName    = "3D000"
	invalidSchemaName     = "3F000"
	tooManyConnections    = "53300"
	outOfMemory           = "53200" // also of the lock table
	adminShutdown         = "57P01"
	idleSessionTimeout    = "57P05"
	crashShutdown         = "57P02"
	cannotConnectNow      = "57P03"
	wrongObjectType       = "42809"
	datatypeMismatch      = "42804"
	protocolViolation     = "08P01"
)

// refusals are what a server will say again, and what to do about it. All others may pass.
var refusals = map[string]string{
	undefinedTable:        "a table is missing; create it with what postgres.Schema prints, or correct schema= and table=",
	undefinedColumn:       "a column is missing; the table is another one, or column= is wrong",
	insufficientPrivilege: "the user lacks a right; grant SELECT, INSERT, UPDATE and DELETE on the lock tables, and USAGE on their schema",
	invalidPassword:       "the user or the password is wrong",
	invalidAuthorization:  "the server does not let this user in",
	invalidCatalogName:    "there is no such database",
	invalidSchemaName:     "there is no such schema",
	invalidTextValue:      "the name cannot be a value of the column",
	numericOutOfRange:     "a number is too great: a token, which end at 9223372036854775807, or a name for an adopted column",
	untranslatableChar:    "the database's encoding cannot keep this name; use UTF8",
	undefinedFunction:     "the column cannot be compared, or the server is too old",
	wrongObjectType:       "the table is not one whose rows can be locked",
	featureNotSupported:   "the server cannot do this",
	datatypeMismatch:      "a column has another type; the table is another one",
}

// passing are errors that need a word of explanation but may pass.
var passing = map[string]string{
	readOnlyTransaction: "the server, perhaps a standby, or the transaction is read-only; connect to the primary, with target_session_attrs=read-write",
	tooManyConnections:  "the server has no connection left; raise its max_connections, or lower conns= and the pools' sizes",
	outOfMemory:         "the server has no room left, perhaps for locks: raise its max_locks_per_transaction",
	cannotConnectNow:    "the server is starting or shutting down",
}

// classify gives a driver's error its class.
func classify(err error) error {
	if err == nil || isClassified(err) {
		return err
	}
	if _, ok := errors.AsType[*pgconn.ParseConfigError](err); ok { // its text may repeat a part of the URL
		return anylock.Invalidf("pgx does not understand the connection settings")
	}
	if certificate, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return anylock.Invalid(certificate, "the server's certificate is not trusted; see sslrootcert=, and name the host as the certificate does")
	}
	if err.Error() == "closed pool" { // the error itself is one of a package below pgx
		return fmt.Errorf("%w: the pool below it was closed", anylock.ErrClosed)
	}
	err = lastAttempt(err)
	if strings.Contains(err.Error(), "server refused TLS connection") {
		return anylock.Invalid(err, "the server does not speak TLS; switch it on there, or choose another sslmode=")
	}
	err = oneLineError{err}
	code := sqlState(err)
	if advice, ok := refusals[code]; ok {
		return anylock.Invalid(err, advice)
	}
	if advice, ok := refusedByPooler(err, code); ok {
		return anylock.Invalid(err, advice)
	}
	if word, ok := passing[code]; ok {
		return anylock.Unavailable(fmt.Errorf("%s: %w", word, err))
	}
	return anylock.Unavailable(err)
}

// lastAttempt is the error of the last of several attempts to connect: without sslmode= the first is one by TLS, which
// says nothing of what the server thinks of us.
func lastAttempt(err error) error {
	for inner := err; inner != nil; {
		if all, ok := inner.(interface{ Unwrap() []error }); ok {
			attempts := all.Unwrap()
			if len(attempts) == 0 {
				return err
			}
			last := attempts[len(attempts)-1]
			if sqlState(last) != invalidAuthorization {
				return last
			}
			// A server that lets nobody in without TLS refuses the second attempt for good, whatever the first one met.
			for _, earlier := range attempts {
				if code := sqlState(earlier); code != "" && refusals[code] == "" {
					return earlier
				}
			}
			return last
		}
		inner = errors.Unwrap(inner)
	}
	return err
}

// poolerRefusals are what PgBouncer says with one and the same code, 08P01, and will say again. Its other texts may pass.
var poolerRefusals = []struct{ words, advice string }{
	{"authentication failed", "the user or the password is wrong, says the pooler"},
	{"no such database", "the pooler knows no such database"},
	{"no such user", "the pooler knows no such user"},
	{"unsupported startup parameter", "the pooler does not take a parameter of the URL; leave it out, or name it in the pooler's ignore_startup_parameters"},
	{"not allowed in statement pooling mode", "the pooler is in statement mode, in which no mode works; use its transaction mode"},
}

func refusedByPooler(err error, code string) (advice string, ok bool) {
	if code != protocolViolation {
		return "", false
	}
	for _, r := range poolerRefusals {
		if strings.Contains(err.Error(), r.words) {
			return r.advice, true
		}
	}
	return "", false
}

// oneLineError is an error whose text fits into a log: pgx lists the hosts that it has tried in lines of their own.
type oneLineError struct{ error }

func (e oneLineError) Unwrap() error { return e.error }

func (e oneLineError) Error() string {
	first, others, more := strings.Cut(e.error.Error(), "\n")
	if !more {
		return first
	}
	return first + " " + strings.Join(strings.FieldsFunc(others, func(r rune) bool { return r == '\n' || r == '\t' }), "; ")
}

func isClassified(err error) bool {
	for _, class := range []error{
		anylock.ErrHeld, anylock.ErrLost, anylock.ErrClosed, anylock.ErrInvalid, anylock.ErrUnavailable, errors.ErrUnsupported,
	} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}

// sqlState is the code of a server's error, "" if it is none. Other drivers for Postgres can tell it, too.
func sqlState(err error) string {
	var e interface{ SQLState() string }
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// isConnectionError reports whether a connection failed, and not a statement on it, and not because ctx ended.
func isConnectionError(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() != nil || isClassified(err) {
		return false
	}
	switch sqlState(err) {
	case "", adminShutdown, crashShutdown, idleSessionTimeout:
		return true
	}
	return false
}
