package postgres

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/anylock/anylock"
)

// connectFunc opens a connection with a session of its own at the server.
type connectFunc func(ctx context.Context) (*pgx.Conn, error)

// errPooler says that it is not certain that the session stays ours.
var errPooler = anylock.Invalidf("a pooler or proxy is between us and the server: the session that answers is not the one that was " +
	"opened, so others may get it in between, which this mode cannot work with; connect to the server itself, or use mode=lease")

// sessionSettings override what the database, the role or the URL may have set, and would end a session that waits or holds.
const sessionSettings = `
SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET idle_session_timeout = 0;
SET default_transaction_isolation = 'read committed';
SET default_transaction_deferrable = off;
SET tcp_keepalives_idle = 5;
SET tcp_keepalives_interval = 2;
SET tcp_keepalives_count = 3;
`

// sessions returns a connectFunc for connections like those of a pool; at, if not empty, is another address.
func sessions(pool *pgxpool.Config, at string) (connectFunc, error) {
	base := pool.ConnConfig.Copy()
	if base.ConnectTimeout == 0 {
		base.ConnectTimeout = connectTime(base)
	}
	base.OnNotification = nil
	base.RuntimeParams["client_encoding"] = "UTF8"
	if at != "" {
		host, port, err := net.SplitHostPort(at)
		number, err2 := strconv.ParseUint(port, 10, 16)
		if err != nil || err2 != nil || host == "" || number == 0 {
			return nil, anylock.Invalidf("listen=%s: it must be true, false or HOST:PORT", at)
		}
		if base.TLSConfig != nil && base.TLSConfig.ServerName != "" {
			base.TLSConfig = base.TLSConfig.Clone()
			base.TLSConfig.ServerName = host
		}
		base.Host, base.Port, base.Fallbacks = host, uint16(number), nil
	}
	return func(ctx context.Context) (*pgx.Conn, error) {
		c := base.Copy()
		if pool.BeforeConnect != nil { // it may bring a password that is new every hour
			if err := pool.BeforeConnect(ctx, c); err != nil {
				return nil, err
			}
		}
		conn, err := pgx.ConnectConfig(ctx, c)
		if err != nil {
			return nil, err
		}
		if err := prepareSession(ctx, conn, pool.AfterConnect); err != nil {
			closeSoon(conn)
			return nil, err
		}
		return conn, nil
	}, nil
}

// prepareSession changes nothing before it is known whose session it is: through a pooler it may be anybody's.
func prepareSession(ctx context.Context, conn *pgx.Conn, afterConnect func(context.Context, *pgx.Conn) error) error {
	for range 2 {
		if err := checkSession(ctx, conn); err != nil {
			return err
		}
	}
	if afterConnect != nil { // it may set the search path, by which tables are found
		if err := afterConnect(ctx, conn); err != nil {
			return err
		}
	}
	settings := sessionSettings
	if serverVersion(conn) >= 17 {
		settings += "SET transaction_timeout = 0;"
	}
	if _, err := conn.Exec(ctx, settings, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	// A server that finds its client's connection closed stops waiting for a lock. Not every system can tell.
	_, _ = conn.Exec(ctx, "SET client_connection_check_interval = '1s'", pgx.QueryExecModeSimpleProtocol)
	return checkSession(ctx, conn)
}

// checkSession returns an error unless the session is the one that the server has announced, and takes writes: a standby
// has advisory locks of its own.
//
// A pooler announces a number of its own making. Some keep a session as long as the connection, but no question tells them
// from the others: those may hand out the same session many times before they do not.
func checkSession(ctx context.Context, conn *pgx.Conn) error {
	var pid uint32
	var standby, readOnly bool
	if err := conn.QueryRow(ctx, sessionSQL, pgx.QueryExecModeSimpleProtocol).Scan(&pid, &standby, &readOnly); err != nil {
		return err
	}
	if pid != conn.PgConn().PID() {
		return errPooler
	}
	return checkStandby(standby, readOnly)
}

const sessionSQL = "SELECT pg_backend_pid(), pg_is_in_recovery(), current_setting('transaction_read_only')::bool"

// serverVersion is the major version, 0 if it is not known.
func serverVersion(conn *pgx.Conn) int {
	text := conn.PgConn().ParameterStatus("server_version")
	n := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	if n < 0 {
		n = len(text)
	}
	version, _ := strconv.Atoi(text[:n])
	return version
}

// closeSoon closes a connection. It waits a moment only: a network may swallow the goodbye.
func closeSoon(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_ = conn.Close(ctx)
}

// checkStandby returns an error when the server does not take writes.
func checkStandby(standby, readOnly bool) error {
	switch {
	case standby:
		return anylock.Unavailable(errors.New("the server is a read-only standby; connect to the primary, or name all servers " +
			"in the URL with target_session_attrs=read-write"))
	case readOnly:
		return anylock.Unavailable(errors.New("the server is read-only for this user (default_transaction_read_only)"))
	}
	return nil
}
