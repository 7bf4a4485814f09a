package anylock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
)

// OpenFunc opens a backend from its URL, without the parameters that belong to the core. It calls [CheckOpen] once it knows
// what it will promise, and then connects once, so that a wrong address or password shows at start-up. It returns an error
// that matches [ErrInvalid] or [ErrUnavailable]. ctx has a deadline.
type OpenFunc func(ctx context.Context, url string) (Backend, error)

var schemes struct {
	sync.RWMutex
	open map[string]OpenFunc
}

// Register makes a backend available to [Open] under the scheme of its URLs. Backends call it from init, so that
// importing one is enough. It panics if the scheme is taken.
func Register(scheme string, open OpenFunc) {
	schemes.Lock()
	defer schemes.Unlock()
	if schemes.open == nil {
		schemes.open = make(map[string]OpenFunc)
	}
	if _, taken := schemes.open[scheme]; taken {
		panic("anylock: Register: scheme " + scheme + " is taken")
	}
	schemes.open[scheme] = open
}

// Open opens the backend that the URL's scheme names and returns a Locker over it:
//
//	l, err := anylock.Open(ctx, "redis://localhost:6379/0?ttl=10s")
//
// The backend's package must be imported, if only for its side effect. Some parameters work on every backend:
//
//	ttl=30s        as WithTTL
//	margin=3s      as WithMargin
//	maxhold=1h     as WithMaxHold
//	renew=false    as WithoutRenewal
//	timeout=3s     as WithRequestTimeout
//	holder=LABEL   as WithHolder
//	require=WORDS  as Require, see ParseGuarantees
//
// The others are the backend's, see its documentation. Parameters in the URL win over opts, so that an operator can
// correct what the code says; require adds to it. An unknown parameter is an error.
//
// Open connects once: ctx bounds that and nothing later, and the request timeout does if ctx has no deadline. Errors match [ErrInvalid] when the URL is wrong or promises
// less than required, and [ErrUnavailable] when the store does not answer. They contain no password.
func Open(ctx context.Context, url string, opts ...Option) (*Locker, error) {
	fail := func(err error) (*Locker, error) { return nil, &Error{Op: "open", Err: err} }
	if err := context.Cause(ctx); err != nil {
		return fail(err)
	}
	scheme, _, found := strings.Cut(url, "://")
	schemes.RLock()
	open := schemes.open[scheme]
	known := slices.Sorted(maps.Keys(schemes.open))
	schemes.RUnlock()
	switch {
	case !found:
		return fail(Invalidf("the URL does not begin with scheme:// (imported are: %s)", strings.Join(known, ", ")))
	case open == nil:
		return fail(Invalidf("no backend is imported for scheme %s%s (imported are: %s); import the package of its backend, as in import _ %q",
			shown(scheme), suggest(scheme, known), strings.Join(known, ", "), "github.com/anylock/anylock/backend/redis"))
	}
	rest, fromURL, err := cutCoreParams(url)
	if err != nil {
		return fail(err)
	}
	opts = append(slices.Clip(opts), fromURL...)
	cfg := applied(opts)
	if err := cfg.checkAlone(); err != nil {
		return fail(err)
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cfg.requestTimeout)
		defer cancel()
	}
	b, err := open(context.WithValue(ctx, openCheckKey{}, cfg.check), rest)
	if err != nil {
		return nil, &Error{Op: "open", Backend: scheme, Err: err}
	}
	l, err := New(b, opts...)
	if err != nil {
		_ = b.Close()
		if e, ok := errors.AsType[*Error](err); ok {
			e.Op = "open"
		}
		return nil, err
	}
	return l, nil
}

type openCheckKey struct{}

// CheckOpen checks the options that [Open] was called with against what a backend is going to promise. An [OpenFunc] calls
// it with its own ctx before it does any I/O, so that a wrong configuration is told from a store that is down.
func CheckOpen(ctx context.Context, d Description) error {
	if check, ok := ctx.Value(openCheckKey{}).(func(Description) error); ok {
		return check(d)
	}
	return nil
}

func applied(opts []Option) config {
	c := defaults()
	for _, o := range opts {
		if o == nil {
			c.fail("an option is nil")
			continue
		}
		o.apply(&c)
	}
	return c
}
