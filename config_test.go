package anylock_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/backend/memory"
)

// untouched fails the test when anything but Describe and Close is called.
type untouched struct {
	anylock.Backend
	t *testing.T
}

func (u untouched) Acquire(context.Context, anylock.Request) (anylock.Grant, error) {
	u.t.Error("the store was asked")
	return anylock.Grant{}, anylock.ErrUnavailable
}

func TestBadInputBeforeAnyIO(t *testing.T) {
	b := untouched{memory.NewStore(anylock.WakeQueue).Client(), t}
	l := newLocker(t, b)
	for what, name := range map[string]string{
		"empty": "", "NUL": "a\x00b", "not UTF-8": "a\xffb", "513 bytes": strings.Repeat("n", 513),
	} {
		_, err := l.Acquire(bg, name)
		wantErr(t, err, anylock.ErrInvalid)
		_, err = l.TryAcquire(bg, name)
		wantErr(t, err, anylock.ErrInvalid)
		wantErr(t, l.Do(bg, name, nil), anylock.ErrInvalid)
		t.Logf("%s: %v", what, err)
	}
	for _, o := range []anylock.AcquireOption{
		anylock.WithTTL(0), anylock.WithTTL(-time.Second), anylock.WithTTL(time.Microsecond), anylock.WithTTL(math.MaxInt64),
		anylock.WithMargin(0), anylock.WithMargin(-1), anylock.WithMargin(time.Hour),
		anylock.WithMaxHold(0), anylock.WithMinToken(-1), anylock.WithHolder(strings.Repeat("h", 129)), anylock.WithHolder("a\nb"), nil,
	} {
		_, err := l.Acquire(bg, "x", o)
		wantErr(t, err, anylock.ErrInvalid)
		_, err = anylock.New(b, o)
		wantErr(t, err, anylock.ErrInvalid)
		t.Log(err)
	}
	_, err := anylock.New(b, anylock.WithRequestTimeout(0))
	wantErr(t, err, anylock.ErrInvalid)
	_, err = anylock.New(nil)
	wantErr(t, err, anylock.ErrInvalid)
}

func TestNilLease(t *testing.T) {
	var lease *anylock.Lease
	wantErr(t, lease.Err(), anylock.ErrInvalid)
	wantErr(t, lease.Renew(bg), anylock.ErrInvalid)
	wantErr(t, lease.Release(bg), anylock.ErrInvalid)
	ctx, cancel := lease.Context(bg)
	defer cancel()
	wantErr(t, context.Cause(ctx), anylock.ErrInvalid)
	if lease.Name() != "" || lease.Token() != 0 || lease.TTL() != 0 || lease.Done() != nil || !lease.Deadline().IsZero() {
		t.Error("a nil lease says that it is something")
	}
}

func TestOpen(t *testing.T) {
	for _, c := range []struct{ url, says string }{
		{"", "does not begin with scheme://"},
		{"memroy://", `did you mean "memory"`},
		{"memory://?tll=3s", `did you mean "ttl"`},
		{"memory://?wkae=poll", `did you mean "wake"`},
		{"memory://?wake=shout", "it must be queue, notify or poll"},
		{"memory://?ttl=3", "it must be a duration"},
		{"memory://?ttl=-3s", "it must be positive"},
		{"memory://?ttl=1s&ttl=2s", "more than once"},
		{"memory://?ttl=1us", "no less than 1ms"},
		{"memory://?renew=perhaps", "true or false"},
		{"memory://?require=exclusion:qorum", `did you mean "quorum"`},
		{"memory://?require=exclusion:quorum", "exclusion of scope quorum, and there is process"},
		{"memory://?require=fiffo", `did you mean "fifo"`},
		{"memory://#x", "#"},
	} {
		l, err := anylock.Open(bg, c.url)
		if l != nil {
			t.Errorf("%s: opened", c.url)
		}
		wantErr(t, err, anylock.ErrInvalid)
		if !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v does not say %q", c.url, err, c.says)
		}
	}
	l, err := anylock.Open(bg, "memory://open?ttl=12s&renew=false&require=fifo,exclusion:process,holder-crash&holder=a%20b", anylock.WithTTL(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(bg)
	lease := acquire(t, l, "x")
	if lease.TTL() != 12*time.Second {
		t.Errorf("the URL's ttl did not win: %v", lease.TTL())
	}
	same, err := anylock.Open(bg, "memory://open")
	if err != nil {
		t.Fatal(err)
	}
	defer same.Close(bg)
	_, err = same.TryAcquire(bg, "x")
	var held *anylock.HeldError
	if !errors.As(err, &held) || held.Holder != "a b" {
		t.Errorf("%v does not name the holder", err)
	}
	ctx, cancel := context.WithCancel(bg)
	cancel()
	_, err = anylock.Open(ctx, "memory://")
	wantErr(t, err, context.Canceled)
}

func TestErrorsShowNoPassword(t *testing.T) {
	for _, url := range []string{
		"memory://user:s3cret@h/?tll=1s", "redis://:my?s3cret@h:1/0", "redis:/:s3cret@h/0?ca=file:///x", ":s3cret@h/0?ca=file:///x",
		"memory://:a?ttl=s3cret@h", "memory://:a?s3cret%40h=1", "memory://:a?ttl=s3cret%40h", "memory://:a?s3cret/=1&s3cret/=2",
		"memory://h?password=a&s3cret", "memory://h?password=a&s3cret=b", "memory://h?x=1&sll=1&s3cret=&s3cret=", "memory://h?hs3cret",
		"memory://:s3cret#x", "s3cret:pw://h", "memory://:pw?x%zzs3cret",
	} {
		_, err := anylock.Open(bg, url)
		wantErr(t, err, anylock.ErrInvalid)
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func init() {
	anylock.Register("down", func(ctx context.Context, _ string) (anylock.Backend, error) {
		if err := anylock.CheckOpen(ctx, memory.NewStore(anylock.WakePoll).Client().Describe()); err != nil {
			return nil, err
		}
		if _, bounded := ctx.Deadline(); !bounded {
			return nil, errors.New("opening has no deadline")
		}
		return nil, anylock.Unavailable(errCut)
	})
}

// A wrong configuration is told even if the store is down, and what is right about it is not held against it.
func TestOpenChecksBeforeIO(t *testing.T) {
	for _, params := range []string{"ttl=-3s", "ttl=1us", "margin=40s", "ttl=100000h", "require=fifo", "require=exclusion:quorum"} {
		_, err := anylock.Open(bg, "down://?"+params)
		wantErr(t, err, anylock.ErrInvalid)
	}
	_, err := anylock.Open(bg, "down://", anylock.Require(anylock.Guarantees{FIFO: true, Exclusion: anylock.ScopeNode}))
	wantErr(t, err, anylock.ErrInvalid)
	if text := err.Error(); !strings.Contains(text, "fifo") || !strings.Contains(text, "node") {
		t.Errorf("%v does not say all that is missing", err)
	}
	_, err = anylock.Open(bg, "down://?ttl=3s&require=exclusion:process,%20holder-crash")
	wantErr(t, err, anylock.ErrUnavailable)
}

func TestRequire(t *testing.T) {
	b := memory.NewStore(anylock.WakeNotify).Client()
	for _, least := range []anylock.Guarantees{
		{Exclusion: anylock.ScopeNode}, {Fencing: anylock.ScopeConsensus}, {FIFO: true}, {Wake: anylock.WakeQueue},
	} {
		_, err := anylock.New(b, anylock.Require(least))
		wantErr(t, err, anylock.ErrInvalid)
	}
	newLocker(t, b, anylock.Require(anylock.Guarantees{}), anylock.Require(b.Describe().Guarantees))
}

func TestRegisterTwicePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	anylock.Register("memory", memory.Open)
}
