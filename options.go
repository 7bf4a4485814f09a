package anylock

import (
	"log/slog"
	"time"
	"unicode/utf8"
)

// Defaults of the options.
const (
	// DefaultTTL is how long a store keeps a lock whose holder went silent.
	DefaultTTL = 30 * time.Second
	// DefaultRequestTimeout bounds one request to the store.
	DefaultRequestTimeout = 3 * time.Second
)

// Option configures a [Locker]. [New] and [Open] check all of them before any I/O.
type Option interface{ apply(*config) }

// AcquireOption configures one acquisition. Given to [New] or [Open] it is the default for all.
type AcquireOption interface {
	Option
	acquireOption()
}

// config is all that options can set; a Locker has one and each acquisition a copy.
type config struct {
	ttl            time.Duration
	margin         time.Duration // negative: a tenth of the TTL
	requestTimeout time.Duration
	noRenewal      bool
	maxHold        time.Duration // zero: none
	holder         string
	minToken       Token
	hooks          Hooks
	logger         *slog.Logger
	require        []Guarantees
	err            error // the first option that is wrong by itself
}

func defaults() config {
	return config{ttl: DefaultTTL, margin: -1, requestTimeout: DefaultRequestTimeout, logger: slog.Default()}
}

type option func(*config)

func (o option) apply(c *config) { o(c) }

type acquireOption func(*config)

func (o acquireOption) apply(c *config) { o(c) }
func (acquireOption) acquireOption()    {}

// WithTTL sets how long the store keeps the lock when nothing more is heard from its holder; [DefaultTTL] if not given.
// It bounds how long others wait for a holder that crashed. Allowed is what the backend can keep, see
// [Locker.Description].
func WithTTL(ttl time.Duration) AcquireOption {
	return acquireOption(func(c *config) { c.ttl = ttl })
}

// WithMargin sets how long before the store may give the lock away the holder stops trusting it: the room for clocks
// that do not run at the same rate, and for the time that the holder needs to stop. 0 < margin < TTL; a tenth of the TTL
// if not given.
func WithMargin(margin time.Duration) AcquireOption {
	return acquireOption(func(c *config) { c.margin = max(margin, 0) })
}

// WithoutRenewal leaves the renewal to the caller's [Lease.Renew]: nothing runs in the background while the lease is
// held, as is right where the process may be frozen between requests (serverless functions).
func WithoutRenewal() AcquireOption {
	return acquireOption(func(c *config) { c.noRenewal = true })
}

// WithMaxHold ends the renewal of a lease once it has been held for d: a holder that hangs does not keep the lock for
// ever. The lease then ends with its trust window, at most one TTL later, with [ErrLost] and [ErrMaxHold].
func WithMaxHold(d time.Duration) AcquireOption {
	return acquireOption(func(c *config) {
		c.maxHold = d
		if d <= 0 {
			c.fail("max hold %v: it must be positive", d)
		}
	})
}

// WithHolder sets the label that others are told when they find the lock held, for people to read: a host, a pod, a
// job. At most [MaxHolderLen] bytes of valid UTF-8 without control characters. It is not used to decide anything.
func WithHolder(label string) AcquireOption {
	return acquireOption(func(c *config) {
		c.holder = label
		if err := checkHolder(label); err != nil {
			c.fail("%w", err)
		}
	})
}

// WithMinToken makes the lease's token at least t, so that tokens follow those of another store that is being migrated
// from. Take t from that store at each acquisition, where it grows: some stores count from it alone then, and forget a
// name that was idle for long, so that a constant t would let tokens repeat.
func WithMinToken(t Token) AcquireOption {
	return acquireOption(func(c *config) {
		c.minToken = t
		if t <= 0 {
			c.fail("minimum token %d: it must be positive", t)
		}
	})
}

// WithRequestTimeout bounds one request to the store, and how long a waiting Acquire puts up with a store that fails;
// [DefaultRequestTimeout] if not given.
func WithRequestTimeout(d time.Duration) Option {
	return option(func(c *config) {
		c.requestTimeout = d
		if d <= 0 {
			c.fail("request timeout %v: it must be positive", d)
		}
	})
}

// WithHooks sets functions that are told what happens, for metrics and traces.
func WithHooks(h Hooks) Option { return option(func(c *config) { c.hooks = h }) }

// WithLogger sets the logger; slog.Default() if not given. Contention and cancelled contexts are logged at Debug only;
// a store that fails and leases that are lost at Warn, a few lines an outage. No record contains an ID.
func WithLogger(l *slog.Logger) Option {
	return option(func(c *config) {
		c.logger = l
		if l == nil {
			c.logger = slog.New(slog.DiscardHandler)
		}
	})
}

// Require makes [New] and [Open] fail when the backend promises less than least, so that changing a URL cannot silently
// weaken a service.
func Require(least Guarantees) Option {
	return option(func(c *config) { c.require = append(c.require, least) })
}

func (c *config) fail(format string, args ...any) {
	if c.err == nil {
		c.err = Invalidf(format, args...)
	}
}

// checkAlone validates what does not depend on the backend.
func (c *config) checkAlone() error {
	switch {
	case c.err != nil:
		return c.err
	case c.ttl <= 0:
		return Invalidf("ttl %v: it must be positive", c.ttl)
	case c.margin == 0:
		return Invalidf("margin: it must be positive")
	case c.margin >= c.ttl:
		return Invalidf("margin %v: it must be less than the ttl of %v", c.margin, c.ttl)
	}
	return nil
}

// check validates all.
func (c *config) check(d Description) error {
	if err := c.checkAlone(); err != nil {
		return err
	}
	for _, least := range c.require {
		if what := d.Guarantees.missing(least); what != "" {
			return Invalidf("required is %s; choose a store that promises it, or require less", what)
		}
	}
	switch {
	case c.ttl < d.MinTTL:
		return Invalidf("ttl %v: %s keeps no less than %v", c.ttl, d.Name, d.MinTTL)
	case c.ttl > d.MaxTTL:
		return Invalidf("ttl %v: %s keeps no more than %v", c.ttl, d.Name, d.MaxTTL)
	}
	return nil
}

// marginOf is the margin for a TTL that the store granted.
func (c *config) marginOf(granted time.Duration) time.Duration {
	if c.margin > 0 {
		return c.margin
	}
	return granted / 10
}

// Limits of names and labels.
const (
	// MaxNameLen is the longest name of a lock, in bytes.
	MaxNameLen = 512
	// MaxHolderLen is the longest holder label, in bytes.
	MaxHolderLen = 128
)

// CheckName returns an error that matches [ErrInvalid] if name cannot be the name of a lock. All backends agree on it.
func CheckName(name string) error {
	switch {
	case name == "":
		return Invalidf("the name is empty")
	case len(name) > MaxNameLen:
		return Invalidf("the name has %d bytes, and at most %d are allowed; hash what is longer", len(name), MaxNameLen)
	case !utf8.ValidString(name):
		return Invalidf("the name is not valid UTF-8; encode it, for example in hex")
	}
	for i := range len(name) {
		if name[i] == 0 {
			return Invalidf("the name contains a NUL byte at offset %d", i)
		}
	}
	return nil
}

func checkHolder(label string) error {
	if len(label) > MaxHolderLen {
		return Invalidf("the holder label has %d bytes, and at most %d are allowed", len(label), MaxHolderLen)
	}
	if !utf8.ValidString(label) {
		return Invalidf("the holder label is not valid UTF-8")
	}
	for _, r := range label {
		if r < ' ' || r == 0x7f {
			return Invalidf("the holder label contains a control character")
		}
	}
	return nil
}
