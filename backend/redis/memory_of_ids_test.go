package redis

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anylock/anylock"
)

// The last four IDs that ended are known: a late request for one is refused, and a late release of one is no loss.
func TestEndedIDsAreRemembered(t *testing.T) {
	b, name := open(t, shared(t).URL()), unique(t)
	var ended []anylock.Grant
	for range 4 {
		g := mustAcquire(t, b, request(name, newID()))
		mustRelease(t, b, g)
		ended = append(ended, g)
	}
	holder := mustAcquire(t, b, request(name, newID()))
	for _, g := range ended {
		mustRelease(t, b, g) // also while somebody else has it
	}
	mustRelease(t, b, holder)
	for _, g := range ended[1:] {
		_, err := b.Acquire(t.Context(), request(name, g.ID))
		wantClass(t, err, anylock.ErrLost)
	}
	if g := mustAcquire(t, b, request(name, ended[0].ID)); g.Token <= holder.Token { // the fifth before
		t.Errorf("token %d after %d", g.Token, holder.Token)
	}
}

// A lock that is held for longer than the retention keeps its counter.
func TestRenewalKeepsTheCounter(t *testing.T) {
	server := shared(t)
	b, raw, name := open(t, server.URL()+"?retention=1m"), rawClient(t, server), unique(t)
	req := request(name, newID())
	req.MinToken = 5
	g := mustAcquire(t, b, req)
	counter := keysFor(defaultPrefix, name).counter
	raw.PExpire(t.Context(), counter, 2*time.Second) // as if the minute were nearly over
	if r := b.Renew(t.Context(), []anylock.Grant{g})[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	if left := raw.PTTL(t.Context(), counter).Val(); left < 50*time.Second {
		t.Errorf("the counter of a held lock is kept for %v", left)
	}
	mustRelease(t, b, g)
	req.ID = newID()
	if next := mustAcquire(t, b, req); next.Token <= g.Token {
		t.Errorf("token %d after %d", next.Token, g.Token)
	}
}

type withMetrics struct{ redis.UniversalClient }

type inAField struct {
	redis.UniversalClient
	inner *withMetrics
}

func TestClientsInsideOthers(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	for _, c := range []redis.UniversalClient{withMetrics{ring}, &withMetrics{ring}, &inAField{client, &withMetrics{ring}}, withMetrics{}} {
		_, err := New(c)
		wantClass(t, err, anylock.ErrInvalid)
	}
	for _, c := range []redis.UniversalClient{withMetrics{client}, &inAField{client, nil}} {
		if _, err := New(c); err != nil {
			t.Errorf("%T: %v", c, err)
		}
	}
}

// A client that its owner has closed is not tried again and again.
func TestClosedClient(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: shared(t).Addr(), ContextTimeoutEnabled: true})
	b := over(t, client)
	g := mustAcquire(t, b, request(unique(t), newID()))
	_ = client.Close()
	_, err := b.Acquire(t.Context(), request(unique(t), newID()))
	wantClass(t, err, anylock.ErrClosed)
	wantClass(t, b.Renew(t.Context(), []anylock.Grant{g})[0].Err, anylock.ErrClosed)
	wantClass(t, b.Release(t.Context(), []anylock.Grant{g})[0], anylock.ErrClosed)
}
