package anylock

import (
	"context"
	"time"
)

// Token is a fencing token: for one name every grant's token is greater than that of every earlier grant. Send it along
// with each write, and let the place where the data lives refuse a token lower than the highest it has seen. A valid
// token is positive; it fits a SQL bigint, an etcd revision and a ZooKeeper zxid.
type Token int64

// Request asks for one attempt at one lock.
type Request struct {
	// Name is the lock: valid UTF-8 of 1 to [MaxNameLen] bytes without NUL, one flat namespace. Different names must
	// never meet in the store; what a store cannot keep as it is, its backend encodes without collisions.
	Name string
	// ID names this acquisition: fresh and random, at least 128 bits, only the letters A-Z and 2-7, of one fixed length.
	// An Acquire repeated with the same ID must find its own lock again and answer with the same token. An ID that was
	// released is not used again: its request that the network delivers later must not leave a lock. A store that
	// remembers the ID refuses it with [ErrLost].
	ID string
	// TTL is what the store should grant, already checked against MinTTL and MaxTTL. Rounding is up.
	TTL time.Duration
	// Wait lets a store with a queue of its own block until the lock is granted or ctx ends. Others ignore it.
	Wait bool
	// Holder is a label for people ("billing-7f9c"), up to [MaxHolderLen] bytes, possibly empty. Never an identity.
	Holder string
	// MinToken, when positive, is a lower bound for the grant's token: tokens follow those of another store that the
	// caller migrates from.
	MinToken Token
	// Lost may be called, from any goroutine and at most once, when the backend learns by itself that this grant has
	// ended in the store (a session expired, the key was deleted). It never blocks. It may be nil.
	Lost func(error)
}

// Grant is a lock that the store has given.
type Grant struct {
	Name string
	ID   string
	// Token obeys the token law, see [Token].
	Token Token
	// TTL is what the store really granted, counted by its own clock from when it handled the request.
	TTL time.Duration
	// From is the local time, with its monotonic reading, just before the request that proves this grant left. A grant
	// that came out of a queue in the store proves itself by a timed request made after it.
	From time.Time
	// State is the backend's own (a revision, a connection); the core hands it back untouched.
	State any
}

// Renewal is the outcome of renewing one grant. Err is nil, or [ErrLost] when the store refused because the grant has
// ended there, or anything else when the outcome is unknown: then the core tries again until the trust window ends.
type Renewal struct {
	From time.Time     // as in Grant, for this request
	TTL  time.Duration // what the store granted anew
	Err  error
}

// Backend is a client of one store, and the only thing that a store has to bring. Everything that must be the same on
// all of them is done by the [Locker] above it: waiting, the local queue, renewal, the trust window, loss, contexts,
// undoing what is unknown, names and TTL rules, hooks and logs.
//
// Rules for all methods. They are called concurrently, also for one name. Slices belong to the caller; a method may read
// them until it returns and must not keep them. A method answers soon after its ctx ends when the driver can do that;
// when it cannot, the method blocks and the core leaves it behind, to look at what it returns later. ctx always has a
// deadline, except for Acquire with Wait and for Watch. Methods may retry inside ctx what is safe to repeat, but need not.
// After Close every method returns [ErrClosed].
//
// Errors. Return [ErrInvalid] when the store understood and will refuse again (bad credentials, missing rights, wrong
// type of key): it promises that nothing was changed. Return [ErrUnavailable], wrapping the driver's error, for all that
// may pass: timeouts, cut connections, a store that loads or fails over. A bare driver error counts as ErrUnavailable.
// Never return [ErrHeld] for a store that failed, and never [ErrLost] for one that did not answer. No error contains a
// password or an ID. The core adds operation, backend and name.
//
// The package conformance checks all of this; docs/writing-a-backend.md leads through it.
type Backend interface {
	// Acquire makes one attempt.
	//
	// It returns a [*HeldError] when somebody else has the lock: then nothing of the request may be left in the store.
	// On any error other than ErrHeld and ErrInvalid the outcome is unknown, and the core undoes it with Release of
	// (Name, ID), or repeats it with the same ID. A grant that arrives after ctx has ended may still be returned; the
	// core undoes it too.
	//
	// An attempt takes one round trip where the store can do that. With req.Wait a store that has a queue
	// ([WakeQueue]) blocks until it is this request's turn, and leaves nothing queued once it has returned.
	Acquire(ctx context.Context, req Request) (Grant, error)

	// Watch returns a channel that receives whenever name may have become free, again and again, until ctx ends. It must
	// be listening when it returns, so that a caller who looks afterwards misses nothing, and it must send once when
	// the connection below was lost and made anew, since something may have been missed meanwhile. Wake-ups may be
	// spurious and may coalesce (a buffer of one is right). The channel is never closed.
	//
	// A nil channel says that the store cannot tell: the core polls. An error means that listening failed; the core
	// polls and tries again, or gives up if it is ErrInvalid.
	Watch(ctx context.Context, name string) (<-chan struct{}, error)

	// Renew extends grants by the TTL they were granted with, at most Describe().MaxBatch of them, and returns one
	// Renewal for each, in order. It names (Name, ID), never the name alone, and never re-creates what has gone. It sets
	// the remaining time and never adds to it. A session store renews once for all.
	//
	// Renew and Release do not queue behind Acquire for long, least of all behind one that waits in the store: with a limit
	// of its own below them a backend says so by MaxRequests, or gives them a way of their own. Where a store has several
	// nodes, one that hangs holds up only what is on it: each grant has its own outcome.
	Renew(ctx context.Context, grants []Grant) []Renewal

	// Release ends exactly these grants, at most MaxBatch of them, and returns one error for each, in order: nil when it
	// is gone by a release of this ID, [ErrLost] when the store did not have (Name, ID) any more, another when that is
	// unknown. A store that does not remember what it has released may answer ErrLost to the second release of an ID.
	// Only Name and ID are sure to be set: the core also releases what was never granted for sure. Somebody who waits
	// for the name is woken, and gets there before a client that releases and acquires in a loop: where the store has no
	// queue, such a client waits a moment.
	Release(ctx context.Context, grants []Grant) []error

	// Describe is constant for the life of the backend and does no I/O.
	Describe() Description

	// Close ends what the backend has opened itself, and nothing that it was given. It does not release locks. It may
	// be called twice.
	Close() error
}

// Description says what a backend is and what it can do.
type Description struct {
	// Name is the backend's name in errors, logs and docs: "redis".
	Name string
	// Guarantees holds for this very configuration.
	Guarantees Guarantees
	// MinTTL and MaxTTL bound what the store can keep. Both are positive.
	MinTTL, MaxTTL time.Duration
	// Deadlines says that Acquire, Release and Watch return within some 20 ms after the deadline of their ctx. Then the
	// core calls them in the goroutine of its own caller, with a short deadline, and repeats what was not answered by
	// then; that spares a goroutine for each call.
	Deadlines bool
	// MaxRequests is how many calls it can have under way at once without waiting, such as the size of a connection pool;
	// zero: any number. The core keeps some of them for renewals, and lets acquires and releases wait before they are
	// called: their deadline begins after that.
	MaxRequests int
	// MaxBatch is how many grants one Renew or Release takes, at least 1.
	MaxBatch int
}
