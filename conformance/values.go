package conformance

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/anylock/anylock"
)

// oddNames are legal names that stores are known to stumble over. All are different locks.
var oddNames = []string{
	" ", "  ", ".", "..", "/", "//", "/a", "a/", "a", "A", "a/b", "a//b", "a/../b", "a%2Fb", "a%2fb", "a%", "%", "a_b", "a-b", "a b",
	"a\tb", "a\nb", "a\r\nb", "\x01", "\x7f", "zookeeper", "file:///tmp/x", "lock:a", "_c_0-lock-", "__name__", "null", "0", "-1",
	"{}", "{a}b", "a{b}c{d}", "{}x", "}{", "a{", "{{a}:b}", "*", "?", "[a]", "a:b", "a::b", "$1", "'", "''", "\"", "\\", "\\x00", "--", ";",
	"é", "e\u0301", "ß", "ss", "İ", "i", "日本語", "🔒", "\u200b", "\ufeff", "\ufffd", "\U0010ffff",
}

var valueCases = []testCase{
	{
		name:    "odd-names", // B54 B57
		promise: "Every legal name works, and different names are different locks, whatever letters they have.",
		check: func(t *tester) {
			names := make([]string, 0, len(oddNames)+8)
			for _, s := range oddNames {
				names = append(names, t.prefix+s, s+t.prefix)
			}
			t.distinct(names)
		},
	},
	{
		name:    "long-names", // B59
		promise: "Names of up to 512 bytes work, and such that differ in their last letter only are different locks.",
		check: func(t *tester) {
			var names []string
			for _, n := range []int{63, 64, 65, 127, 128, 200, 255, 256, 257, 511, anylock.MaxNameLen} {
				for _, last := range []string{"x", "y", "X"} {
					names = append(names, t.prefix+strings.Repeat("n", n-len(t.prefix)-1)+last)
				}
			}
			names = append(names, t.prefix+strings.Repeat("/", anylock.MaxNameLen-len(t.prefix)),
				t.prefix+strings.Repeat("é", (anylock.MaxNameLen-len(t.prefix))/2))
			t.distinct(names)
		},
	},
	{
		name:    "invalid-names", // B54 B59
		promise: "An empty name, one with a NUL, one that is not UTF-8 and one of 513 bytes give ErrInvalid before any I/O.",
		check: func(t *tester) {
			c, p := t.probe(t.client(), nil)
			a := t.peerOn(c)
			for _, name := range []string{"", "\x00", "a\x00b", "\xff", "a\xc3", "\xed\xa0\x80", strings.Repeat("n", anylock.MaxNameLen+1)} {
				t.invalid(a, fmt.Sprintf("name %.20q", name), name)
			}
			if n := p.calls(); n > 0 {
				t.Errorf("%d requests to the store", n)
			}
		},
	},
	{
		name:    "invalid-ttls", // B44 B48 B49
		promise: "A TTL that is not positive, or that the store cannot keep, gives ErrInvalid before any I/O.",
		check: func(t *tester) {
			c, p := t.probe(t.client(), nil)
			a, d := t.peerOn(c), t.desc
			ttls := []time.Duration{0, -1, -time.Second, math.MinInt64, d.MinTTL - 1}
			if d.MaxTTL < math.MaxInt64 {
				ttls = append(ttls, d.MaxTTL+1, math.MaxInt64)
			}
			for _, ttl := range ttls {
				t.invalid(a, fmt.Sprintf("ttl %v", ttl), t.name("n"), anylock.WithTTL(ttl))
				if _, err := anylock.New(c.Backend, anylock.WithTTL(ttl)); err == nil {
					t.Errorf("New takes a ttl of %v", ttl)
				} else {
					t.wants(err, anylock.ErrInvalid)
				}
			}
			if n := p.calls(); n > 0 {
				t.Errorf("%d requests to the store", n)
			}
		},
	},
	{
		name:    "invalid-options",
		promise: "Options that make no sense give ErrInvalid before any I/O.",
		check: func(t *tester) {
			c, p := t.probe(t.client(), nil)
			a := t.peerOn(c)
			for what, opt := range map[string]anylock.AcquireOption{
				"margin of the TTL":      anylock.WithMargin(t.TTL),
				"margin of zero":         anylock.WithMargin(0),
				"max hold of zero":       anylock.WithMaxHold(0),
				"negative max hold":      anylock.WithMaxHold(-1),
				"minimum token of zero":  anylock.WithMinToken(0),
				"negative minimum token": anylock.WithMinToken(-1),
				"holder too long":        anylock.WithHolder(strings.Repeat("h", anylock.MaxHolderLen+1)),
				"holder not UTF-8":       anylock.WithHolder("\xff"),
				"holder with a newline":  anylock.WithHolder("a\nb"),
				"nil":                    nil,
			} {
				t.invalid(a, what, t.name("n"), opt)
			}
			if n := p.calls(); n > 0 {
				t.Errorf("%d requests to the store", n)
			}
		},
	},
	{
		name:    "extreme-ttls", // B48
		promise: "The least and the greatest TTL that the backend allows are kept.",
		check: func(t *tester) {
			a, b := t.client(), t.client()
			for _, ttl := range []time.Duration{t.desc.MinTTL, t.desc.MaxTTL} {
				r := t.request(t.name(ttl.String()), ttl)
				g, err := a.Backend.Acquire(t.bounded(), r)
				t.must(err, "Acquire with a TTL of "+ttl.String())
				if g.TTL < ttl {
					t.Errorf("granted %v, asked for %v", g.TTL, ttl)
				}
				if ttl > time.Second {
					t.heldByOther(b, r.Name, "with a TTL of "+ttl.String())
					time.Sleep(10 * time.Millisecond)
					t.heldByOther(b, r.Name, "with a TTL of "+ttl.String())
					t.must(t.renewal(a, g).Err, "Renew with a TTL of "+ttl.String())
				}
				if err := t.end(a, g); err != nil && ttl > time.Second {
					t.Errorf("Release: %v", err)
				}
			}
		},
	},
	{
		name:    "odd-ttls", // B49
		promise: "A TTL is rounded up, never down, and the lease says what it got.",
		check: func(t *tester) {
			c := t.client()
			for i, ttl := range []time.Duration{t.TTL + 1, t.TTL + time.Microsecond, t.TTL + 499*time.Microsecond, t.TTL*3/2 + 1} {
				g := t.grant(c, t.request(t.name(fmt.Sprint(i)), ttl))
				if g.TTL < ttl || !t.KeepsAlive && g.TTL > ttl+max(time.Second, t.desc.MinTTL) {
					t.Errorf("granted %v, asked for %v", g.TTL, ttl)
				}
				t.must(t.end(c, g), "Release")
			}
		},
	},
	{
		name:    "lease-tells",
		promise: "A lease tells its name, token, TTL and deadline as they are.",
		check: func(t *tester) {
			a, name := t.peer(), t.name("n")
			start := time.Now()
			l := a.try(name, anylock.WithMargin(t.TTL/5))
			if l.Name() != name || l.Token() <= 0 || l.TTL() < t.TTL || l.Err() != nil {
				t.Errorf("name %q, token %d, TTL %v, Err %v", l.Name(), l.Token(), l.TTL(), l.Err())
			}
			first, last := start.Add(l.TTL()-t.TTL/5-20*time.Millisecond), time.Now().Add(l.TTL()-t.TTL/5+20*time.Millisecond)
			if d := l.Deadline(); d.Before(first) || d.After(last) {
				t.Errorf("the deadline is %v after the call, with a TTL of %v and a margin of %v", d.Sub(start), l.TTL(), t.TTL/5)
			}
			a.release(l)
		},
	},
	{
		name:    "holder-label",
		promise: "Who finds a lock held is told the holder's label, or nothing.",
		check: func(t *tester) {
			a, b := t.peer(), t.peer()
			for i, label := range []string{"", "billing-7f9c", "a b:c|d,e;f\"g'h\\i", "日本 🔒", strings.Repeat("h", anylock.MaxHolderLen)} {
				name := t.name(fmt.Sprint(i))
				l := a.try(name, anylock.WithHolder(label))
				_, err := b.TryAcquire(t.ctx, name)
				if held := t.heldError(err); held.Holder != label && held.Holder != "" {
					t.Errorf("the holder is called %q, its label is %q", held.Holder, label)
				}
				a.release(l)
			}
		},
	},
	{
		name:    "nil-lease", // B128
		promise: "The methods of a nil lease report ErrInvalid and do not panic, and an error never comes with a lease.",
		check: func(t *tester) {
			a, b, name := t.peer(), t.peer(), t.name("n")
			held := a.try(name)
			l, err := b.TryAcquire(t.ctx, name)
			t.wants(err, anylock.ErrHeld)
			if l != nil {
				t.Fatalf("an error comes with a lease")
			}
			t.wants(l.Err(), anylock.ErrInvalid)
			t.wants(l.Renew(t.ctx), anylock.ErrInvalid)
			t.wants(l.Release(t.ctx), anylock.ErrInvalid)
			ctx, cancel := l.Context(t.ctx)
			t.wants(context.Cause(ctx), anylock.ErrInvalid)
			cancel()
			_, _, _, _ = l.Name(), l.Token(), l.Deadline(), l.Done()
			a.release(held)
		},
	},
	{
		name:    "closed-locker",
		promise: "A closed Locker answers ErrClosed, and closing twice is harmless.",
		check: func(t *tester) {
			a, name := t.peer(), t.name("n")
			t.must(a.Locker.Close(t.ctx), "Close")
			for range 2 {
				_, err := a.Acquire(t.ctx, name)
				t.wants(err, anylock.ErrClosed)
				_, err = a.TryAcquire(t.ctx, name)
				t.wants(err, anylock.ErrClosed)
				t.not(err, anylock.ErrHeld, anylock.ErrUnavailable)
				err = a.Do(t.ctx, name, func(context.Context, *anylock.Lease) error {
					t.Errorf("Do of a closed Locker calls its function")
					return nil
				})
				t.wants(err, anylock.ErrClosed)
				t.must(a.Locker.Close(t.ctx), "Close again")
			}
		},
	},
	{
		name:    "closed-backend",
		promise: "After Close every method of a backend returns ErrClosed, and closing it twice is harmless.",
		check: func(t *tester) {
			c, other, name := t.client(), t.client(), t.name("n")
			g := t.grant(c, t.request(name, t.TTL))
			t.must(c.Backend.Close(), "Close")
			t.must(c.Backend.Close(), "Close again")
			_, err := c.Backend.Acquire(t.bounded(), t.request(name, t.TTL))
			t.wants(err, anylock.ErrClosed)
			t.wants(t.renewal(c, g).Err, anylock.ErrClosed)
			t.wants(t.end(c, g), anylock.ErrClosed)
			if wake, err := c.Backend.Watch(t.ctx, name); wake != nil || err != nil {
				t.wants(err, anylock.ErrClosed)
			}
			if err := other.Backend.Close(); err != nil {
				t.Errorf("another client's Close: %v", err)
			}
		},
	},
	{
		name:    "description",
		promise: "A backend describes itself fully, always in the same way.",
		check: func(t *tester) {
			a := t.peer()
			d := a.Backend.Describe()
			if d != t.desc {
				t.Errorf("two clients describe themselves differently: %+v and %+v", d, t.desc)
			}
			if d.Name == "" || d.MinTTL <= 0 || d.MaxTTL < d.MinTTL || d.MaxBatch < 1 {
				t.Errorf("incomplete: %+v", d)
			}
			if d.Guarantees.Exclusion == anylock.ScopeNone {
				t.Errorf("the backend promises no exclusion at all")
			}
			if a.Guarantees() != d.Guarantees || a.Description() != d {
				t.Errorf("the Locker says something else than its backend")
			}
		},
	},
	{
		name:    "require",
		promise: "New refuses a backend that promises less than is required, and takes one that promises it.",
		check: func(t *tester) {
			c := t.client()
			if _, err := anylock.New(c.Backend, anylock.Require(t.desc.Guarantees)); err != nil {
				t.Errorf("New with what the backend promises: %v", err)
			}
			more := anylock.Guarantees{Exclusion: t.desc.Guarantees.Exclusion + 1}
			_, err := anylock.New(c.Backend, anylock.Require(more))
			t.wants(err, anylock.ErrInvalid)
		},
	},
}

// distinct holds all names at once, as far as one client can, and checks that each excludes just itself.
func (t *tester) distinct(names []string) {
	a, b := t.peer(anylock.WithTTL(t.long)), t.peer()
	for len(names) > 0 {
		some := names[:min(len(names), t.MaxHolds-1)]
		names = names[len(some):]
		leases := make([]*anylock.Lease, len(some))
		for i, name := range some {
			l, err := a.TryAcquire(t.ctx, name)
			if err != nil {
				t.Errorf("name %.40q: %v", name, err)
				continue
			}
			leases[i] = l
		}
		for i, l := range leases {
			if l == nil {
				continue
			}
			b.refused(some[i], fmt.Sprintf("name %.40q", some[i]))
			a.release(l)
			if m, err := b.TryAcquire(t.ctx, some[i]); err != nil {
				t.Errorf("name %.40q after its release: %v", some[i], err)
			} else {
				b.release(m)
			}
		}
	}
}

// invalid checks that a call is refused as wrong, in both forms.
func (t *tester) invalid(p *peer, what, name string, opts ...anylock.AcquireOption) {
	for _, acquire := range []func(context.Context, string, ...anylock.AcquireOption) (*anylock.Lease, error){p.Acquire, p.TryAcquire} {
		l, err := acquire(t.ctx, name, opts...)
		if err == nil {
			t.Errorf("%s: no error", what)
			p.release(l)
			continue
		}
		t.wants(err, anylock.ErrInvalid)
		t.not(err, anylock.ErrHeld, anylock.ErrUnavailable, anylock.ErrLost)
	}
}
