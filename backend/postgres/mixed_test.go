package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/anylock/anylock"
)

// Where a lock of each mode is taken in one table, the other mode's counting neither prolongs a lease nor revives it.
func TestMixedModesLeaveALeaseItsTime(t *testing.T) {
	const ttl = time.Second
	s := server(t)
	for _, mode := range []string{"mode=rowlock", "mode=advisory"} {
		t.Run(mode, func(t *testing.T) {
			schema := freshSchema(t, s)
			old, other := open(t, urlOf(s, schema)), open(t, urlOf(s, schema))
			both := open(t, urlOf(s, schema, mode, "mixed=true"))
			brief := request("n")
			brief.TTL = ttl
			lease := must(old.Acquire(ctx10(t), brief))(t)
			count := func() {
				t.Helper()
				g := must(both.Acquire(ctx10(t), request("n")))(t)
				if g.Token <= lease.Token {
					t.Errorf("token %d after %d", g.Token, lease.Token)
				}
				must(0, both.Release(ctx10(t), []anylock.Grant{g})[0])(t)
			}
			count()
			must(0, old.Renew(ctx10(t), []anylock.Grant{lease})[0].Err)(t)
			count()
			var held *anylock.HeldError
			if _, err := other.Acquire(ctx10(t), request("n")); !errors.As(err, &held) || held.RetryAfter > ttl {
				t.Fatalf("while the lease is held: %v, free after %v", err, held.RetryAfter)
			}
			time.Sleep(ttl)
			count() // after it has expired
			if err := old.Renew(ctx10(t), []anylock.Grant{lease})[0].Err; !errors.Is(err, anylock.ErrLost) {
				t.Errorf("the renewal of a lease that has expired: %v", err)
			}
			must(other.Acquire(ctx10(t), request("n")))(t)
		})
	}
}
