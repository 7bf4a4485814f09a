// Package anylock is a distributed lock with one API over many stores, each of which keeps the same promises as far as it
// can and says where it cannot.
//
//	l, err := anylock.Open(ctx, "redis://localhost:6379")
//	...
//	lease, err := l.Acquire(ctx, "stock/phone-15")
//	if err != nil {
//		return err // errors.Is(err, anylock.ErrHeld), ErrUnavailable ...
//	}
//	defer lease.Release(ctx)
//	err = store.Save(ctx, order, lease.Token())
//
// A lock is a name in a store. A [Lease] is one acquisition of it: it is renewed in the background until it is released,
// it tells when it ends ([Lease.Done], [Lease.Err], [Lease.Context]), and it has a fencing [Token]. A [Locker] is what
// acquires them, and a [Backend] is the client of a store underneath.
//
// # What is promised
//
// A lease may be trusted until its trust window ends: the time just before the request that granted or last renewed it
// left, plus the TTL that the store granted, less a margin for clocks that run at different rates. The store frees the
// lock later than that, so nobody else is granted it inside the window, whatever the network does, as far as the
// exclusion of the store reaches ([Guarantees]). At its end the holder is told by a local timer, whether or not the
// store can be reached.
//
// # What no lock can promise
//
// A holder that is paused after its last look at the clock, by the garbage collector or the operating system, acts when
// it wakes up, and by then somebody else may hold the lock. What must never happen twice has to be refused where the
// data lives: send the Token with each write, and refuse one that is lower than the highest seen. Tokens of one name
// grow with every grant.
package anylock
