package postgres_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/anylock/anylock"
)

// A request in the server's queue that gives up has left the queue when it returns, at whatever moment it was: nobody is
// told of a lock that nobody has.
func TestWaiterThatGaveUpHasLeft(t *testing.T) {
	s := server(t)
	for _, mode := range []string{"mode=rowlock", "mode=advisory"} {
		t.Run(mode, func(t *testing.T) {
			param := freshSchema(t, s)
			holder, waiter, other := open(t, urlOf(s, param, mode)), open(t, urlOf(s, param, mode)), open(t, urlOf(s, param, mode))
			held, slowest := 0, time.Duration(0)
			for range 300 {
				g := must(holder.Acquire(ctx10(t), request("n")))(t)
				ctx, cancel := context.WithCancel(ctx10(t))
				time.AfterFunc(rand.N(400*time.Microsecond), cancel) // also when the request is just leaving
				start := time.Now()
				waiting := request("n")
				waiting.Wait = true
				if _, err := waiter.Acquire(ctx, waiting); err == nil {
					t.Fatal("granted while somebody holds it")
				}
				slowest = max(slowest, time.Since(start))
				must(0, holder.Release(ctx10(t), []anylock.Grant{g})[0])(t)
				next, err := other.Acquire(ctx10(t), request("n"))
				if err != nil {
					held++
					continue
				}
				must(0, other.Release(ctx10(t), []anylock.Grant{next})[0])(t)
			}
			t.Logf("the slowest took %v", slowest)
			if held > 0 {
				t.Errorf("%d of 300 were told that somebody has it", held)
			}
		})
	}
}
