package postgres

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/anylock/anylock"
)

const (
	connectTimeout = 5 * time.Second
	ownConns       = 4 // of a pool that we make, for short statements
	// pingAfter: a pooled connection that was idle for longer is tried out before it is used.
	pingAfter = 30 * time.Second
)

// dialer makes connections that notice within some 11 seconds that a network swallows everything, also while they wait.
var dialer = net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
	Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3,
}}

func init() {
	open := func(ctx context.Context, url string) (anylock.Backend, error) {
		b, err := Open(ctx, url)
		if err != nil {
			return nil, err // and not a nil *Backend in an interface
		}
		return b, nil
	}
	for _, scheme := range []string{"postgres", "postgresql"} {
		anylock.Register(scheme, open)
	}
}

// driverParams go to pgx, which understands them or gives them to the server.
var driverParams = []string{
	"host", "port", "user", "password", "dbname", "database", "passfile", "service", "servicefile", "connect_timeout",
	"sslmode", "sslkey", "sslcert", "sslcertmode", "sslrootcert", "sslnegotiation", "sslpassword", "sslsni", "krbspn", "krbsrvname",
	"target_session_attrs", "channel_binding", "require_auth", "min_protocol_version", "max_protocol_version",
	"default_query_exec_mode", "statement_cache_capacity", "description_cache_capacity",
	"pool_max_conns", "pool_min_conns", "pool_min_idle_conns", "pool_max_conn_lifetime", "pool_max_conn_lifetime_jitter",
	"pool_max_conn_idle_time", "pool_health_check_period", "pool_ping_timeout",
	"application_name", "fallback_application_name", "search_path", "options", "client_encoding", "role",
	// Settings of the server, for all of our sessions. In the modes rowlock and advisory, and for LISTEN, those that would end a
	// session that waits or holds are overridden, see sessionSettings.
	"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout", "transaction_timeout",
	"timezone", "TimeZone", "datestyle", "DateStyle", "intervalstyle", "IntervalStyle", "synchronous_commit", "work_mem",
	"tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout",
	"client_connection_check_interval", "default_transaction_isolation", "log_min_duration_statement", "jit",
}

// Open makes a backend with connections of its own from a URL, see the package documentation. It asks the server once
// whether it is there and has the tables, for as long as ctx allows.
func Open(ctx context.Context, url string) (*Backend, error) {
	c, settings, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, anylock.Unavailable(context.Cause(ctx))
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), settings)
	if err != nil {
		return nil, classify(err)
	}
	d := newDatabase(pool, true, c)
	b, err := newBackend(d, settings)
	if err != nil {
		return nil, err
	}
	err = anylock.CheckOpen(ctx, b.Describe())
	if err == nil {
		err = d.introduce(ctx)
	}
	if err == nil {
		err = b.mode.introduce(ctx)
	}
	if err == nil {
		err = b.claim.check(ctx, d)
	}
	if err != nil {
		_ = b.Close()
		return nil, classify(err)
	}
	return b, nil
}

func parseURL(raw string) (config, *pgxpool.Config, error) {
	c := defaults()
	fail := func(err error) (config, *pgxpool.Config, error) { return c, nil, err }
	base, p, err := anylock.SplitURL(raw)
	if err != nil {
		return fail(err)
	}
	if !strings.HasPrefix(base, "postgres://") && !strings.HasPrefix(base, "postgresql://") {
		return fail(anylock.Invalidf("the URL must begin with postgres:// or postgresql://"))
	}
	if strings.Count(base, "@") > 1 { // pgx would take what follows the first for the host, and show it
		return fail(anylock.Invalidf("the URL has more than one @; write %%40 for one in the user or the password"))
	}
	_, address, _ := strings.Cut(base, "://")
	if _, path, _ := strings.Cut(address, "/"); strings.Contains(path, "@") { // pgx would take it for the database, and show it
		return fail(anylock.Invalidf("the URL has an @ behind a /; write %%2F for a / in the user or the password, and %%40 for an @ in " +
			"the name of a database"))
	}
	c.mode = Mode(p.String("mode", string(c.mode)))
	c.schema = p.String("schema", "")
	c.prefix = p.String("prefix", "")
	c.create = p.Bool("create", true)
	c.mixed = p.Bool("mixed", false)
	c.retention = p.Duration("retention", c.retention)
	c.conns = p.Int("conns", c.conns)
	if p.Has("column") {
		c.adopt = &Adopted{Table: p.String("table", ""), Column: p.String("column", "")}
	} else {
		c.table = p.String("table", c.table)
	}
	switch at := p.String("listen", "true"); at {
	case "true":
	case "false":
		c.listen = false
	default:
		c.listenAt = at
	}
	others := url.Values{}
	for _, name := range driverParams {
		if p.Has(name) {
			others.Set(name, p.String(name, ""))
		}
	}
	if e := others.Get("client_encoding"); e != "" && !strings.EqualFold(strings.ReplaceAll(e, "-", ""), "UTF8") {
		return fail(anylock.Invalidf("client_encoding= must be UTF8, since names are"))
	}
	if err := p.Err(); err != nil {
		return fail(err)
	}
	if err := c.check(); err != nil {
		return fail(err)
	}
	if c.mode != Lease && c.listenAt != "" {
		return fail(anylock.Invalidf("listen= is for mode=lease, and the mode is %s", c.mode))
	}
	settings, err := pgxpool.ParseConfig(base + "?" + strings.ReplaceAll(others.Encode(), "+", "%20"))
	if err != nil {
		return fail(misunderstood(err, base, others.Get("password")))
	}
	ownSettings(settings, others.Has("pool_max_conns"))
	settings.ConnConfig.DialFunc = dialer.DialContext
	settings.ConnConfig.RuntimeParams["client_encoding"] = "UTF8" // whatever the role has
	if name := settings.ConnConfig.RuntimeParams; name["application_name"] == "" {
		name["application_name"] = "anylock"
	}
	return c, settings, nil
}

// misunderstood says why pgx refuses a URL, as far as it can be said: its texts may contain the password.
func misunderstood(err error, base string, secrets ...string) error {
	plain, malformed := pgxpool.ParseConfig(base)
	if malformed != nil {
		return anylock.Invalidf("pgx does not understand the URL: write postgres://USER:PASSWORD@HOST:PORT/DATABASE?name=value, " +
			"with %%XX for special letters")
	}
	reason := err.Error()
	if inner := errors.Unwrap(err); inner != nil {
		reason = inner.Error()
	}
	for _, secret := range append(secrets, plain.ConnConfig.Password) {
		if secret != "" && strings.Contains(reason, secret) {
			return anylock.Invalidf("pgx does not understand a value in the URL; check sslmode, port, connect_timeout and the like")
		}
	}
	return anylock.Invalidf("pgx does not understand a value in the URL: %s", reason)
}

// ownSettings makes a configuration fit for a pool of ours.
func ownSettings(c *pgxpool.Config, sized bool) {
	if c.ConnConfig.ConnectTimeout == 0 || c.ConnConfig.ConnectTimeout > time.Minute {
		c.ConnConfig.ConnectTimeout = connectTime(c.ConnConfig)
	}
	if !sized {
		c.MaxConns = ownConns
	}
	if c.ShouldPing == nil {
		c.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return p.IdleDuration > pingAfter }
	}
}

// ownPool is a small pool that connects as another one does.
func ownPool(like *pgxpool.Config) (*pgxpool.Pool, error) {
	c := like.Copy()
	c.MinConns, c.MinIdleConns = 0, 0
	ownSettings(c, false)
	pool, err := pgxpool.NewWithConfig(context.Background(), c)
	return pool, classify(err)
}

// introduce makes sure that the server is there, takes writes and has the tables.
func (d *database) introduce(ctx context.Context) error {
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	var pid uint32
	var standby, readOnly bool
	if err := conn.QueryRow(ctx, sessionSQL, pgx.QueryExecModeSimpleProtocol).Scan(&pid, &standby, &readOnly); err != nil {
		return err
	}
	if err := checkStandby(standby, readOnly); err != nil {
		return err
	}
	if pid != conn.Conn().PgConn().PID() && conn.Conn().Config().DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		d.unprepared.Store(true) // a pooler: it may not keep prepared statements
	}
	// conn is kept meanwhile: a pool of one connection would wait for itself.
	looks := []string{"SELECT name, version, id, ended, holder, expires_at, session FROM {locks} LIMIT 0"} // first, lest a wrong one gets a second table
	if d.config.mode == RowLock {
		looks = append(looks, "SELECT name, created_at FROM {rows} LIMIT 0")
	}
	missing := false
	for _, look := range looks {
		_, err := conn.Exec(ctx, d.config.fill(look), pgx.QueryExecModeExec)
		switch {
		case sqlState(err) == undefinedTable:
			missing = true
		case err != nil:
			return err
		}
	}
	if a := d.config.adopt; a != nil {
		if _, err := conn.Exec(ctx, d.config.rowStatements().tryOther, pgx.QueryExecModeExec, nil); err != nil {
			return a.explain(err)
		}
	}
	conn.Release()
	if missing {
		if err := d.createTables(ctx); err != nil {
			return err
		}
	}
	return d.resolve(ctx)
}
