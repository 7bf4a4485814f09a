package postgres

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"time"

	"github.com/anylock/anylock"
)

// Mode is how a lock is kept.
type Mode string

// The modes. All processes that use a lock must use the same one.
const (
	// Lease keeps a row with a version and an expiry. Nothing is held open.
	Lease Mode = "lease"
	// RowLock keeps a row locked by SELECT ... FOR UPDATE in a transaction that is as long as the lease.
	RowLock Mode = "rowlock"
	// Advisory keeps a session-level advisory lock.
	Advisory Mode = "advisory"
)

var modes = []string{string(Lease), string(RowLock), string(Advisory)}

const (
	defaultTable     = "anylock"
	defaultConns     = 16
	defaultRetention = time.Hour
	maxRetention     = 366 * 24 * time.Hour
	maxIdentifier    = 63 - len(rowsSuffix)
	maxPrefix        = 256
	rowsSuffix       = "_rows"
)

type config struct {
	mode      Mode
	schema    string
	table     string
	prefix    string
	create    bool
	listen    bool
	listenAt  string // host:port; empty: where the statements go
	retention time.Duration
	conns     int
	adopt     *Adopted
	mixed     bool
	key       func(name string) int64 // nil: the default
}

func defaults() config {
	return config{
		mode: Lease, table: defaultTable, create: true, listen: true,
		retention: defaultRetention, conns: defaultConns,
	}
}

// Option changes how a [Backend] uses Postgres. Most are also parameters of the URL.
type Option func(*config)

// WithMode chooses how locks are kept, [Lease] unless it is set. URL: mode=lease, rowlock or advisory.
func WithMode(m Mode) Option { return func(c *config) { c.mode = m } }

// WithSchema sets the schema of the backend's own tables; the first of the search path unless it is set. URL: schema=NAME.
func WithSchema(name string) Option { return func(c *config) { c.schema = name } }

// WithTable sets the name of the backend's own table, "anylock" unless it is set. Lock rows of [RowLock] are in a second
// one, whose name ends in _rows. URL: table=NAME (without column=).
func WithTable(name string) Option { return func(c *config) { c.table = name } }

// WithPrefix sets what stands before each lock's name in the store, nothing unless it is set: applications that share a
// table or, in mode advisory, a database, keep apart by it. URL: prefix=TEXT.
func WithPrefix(prefix string) Option { return func(c *config) { c.prefix = prefix } }

// WithoutCreate keeps the backend from creating tables that are missing: that is an error then. URL: create=false.
func WithoutCreate() Option { return func(c *config) { c.create = false } }

// WithoutListen makes waiters of mode lease poll instead of LISTEN on a connection of its own. URL: listen=false.
func WithoutListen() Option { return func(c *config) { c.listen = false } }

// WithListenAt sets the server's own address for LISTEN, where the other statements go through a pooler that cannot keep
// a session. User, password and database are the same. URL: listen=HOST:PORT.
func WithListenAt(hostPort string) Option {
	return func(c *config) { c.listen, c.listenAt = true, hostPort }
}

// WithRetention sets for how long the last token of a lock that nobody uses is kept, 1h unless it is set. By as much may
// the server's clock step back without a token going back. URL: retention=DURATION.
func WithRetention(d time.Duration) Option { return func(c *config) { c.retention = d } }

// WithConns bounds the connections that the modes rowlock and advisory open for locks, 16 unless it is set. In rowlock
// each held lock and each waiter takes one; in advisory each waiter does. A few more are opened for short statements.
// URL: conns=N.
func WithConns(n int) Option { return func(c *config) { c.conns = n } }

// WithKey sets which 64-bit key the advisory lock of a name has, so that anylock meets code that uses such keys already.
// The prefix is not part of it. Names with the same key exclude each other.
func WithKey(key func(name string) int64) Option { return func(c *config) { c.key = key } }

// WithMixedModes lets this client use a table that is for another mode. The modes do not exclude each other, so that is for
// work that takes a lock of each on purpose; otherwise a second mode is an error. URL: mixed=true.
func WithMixedModes() Option { return func(c *config) { c.mixed = true } }

func configure(c config, opts []Option) (config, error) {
	for _, o := range opts {
		if o == nil {
			return c, anylock.Invalidf("an option is nil")
		}
		o(&c)
	}
	return c, c.check()
}

func (c config) check() error {
	switch c.mode {
	case Lease, RowLock, Advisory:
	default:
		return anylock.Invalidf("mode=%s: it must be one of %s", c.mode, strings.Join(modes, ", "))
	}
	switch {
	case c.table == "" || len(c.table) > maxIdentifier || strings.ContainsRune(c.table, 0):
		return anylock.Invalidf("table=%s: it must be 1 to %d bytes long", c.table, maxIdentifier)
	case len(c.schema) > 63 || strings.ContainsRune(c.schema, 0):
		return anylock.Invalidf("schema=%s: it must be at most 63 bytes long", c.schema)
	case len(c.prefix) > maxPrefix:
		return anylock.Invalidf("the prefix has %d bytes, and at most %d are allowed", len(c.prefix), maxPrefix)
	case c.prefix != "" && anylock.CheckName(c.prefix) != nil:
		return anylock.Invalidf("the prefix must be valid UTF-8 without NUL")
	case c.retention < time.Minute || c.retention > maxRetention:
		return anylock.Invalidf("retention=%v: it must be between 1m and %v", c.retention, maxRetention)
	case c.conns < 1:
		return anylock.Invalidf("conns=%d: it must be positive", c.conns)
	case c.adopt != nil && c.mode != RowLock:
		return anylock.Invalidf("column= adopts rows, which only mode=rowlock can do, and the mode is %s", c.mode)
	case c.key != nil && c.mode != Advisory:
		return anylock.Invalidf("a key function is for mode=advisory, and the mode is %s", c.mode)
	}
	if c.adopt != nil {
		return c.adopt.check()
	}
	return nil
}

// hash64 maps texts to a number; none of them contains a NUL.
func hash64(texts ...string) int64 {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return int64(binary.BigEndian.Uint64(sum[:])) //nolint:gosec // all 64 bits are used
}
