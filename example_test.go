package anylock_test

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"
	"time"

	"github.com/anylock/anylock"
	"github.com/anylock/anylock/backend/memory"
)

// One string in the configuration chooses the store.
func Example() {
	ctx := context.Background()
	l, err := anylock.Open(ctx, "memory://shop?ttl=10s")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close(ctx)

	lease, err := l.Acquire(ctx, "stock/phone-15")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release(ctx)
	fmt.Println("holding", lease.Name(), "with token", lease.Token())
	// Output: holding stock/phone-15 with token 1
}

func ExampleLocker_Do() {
	ctx := context.Background()
	l, _ := anylock.New(memory.NewStore(anylock.WakeQueue).Client())
	defer l.Close(ctx)

	err := l.Do(ctx, "nightly-report", func(ctx context.Context, lease *anylock.Lease) error {
		// ctx ends if the lock is lost: pass it on to all that is done here.
		fmt.Println("the report is written once")
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// the report is written once
	// <nil>
}

func ExampleLocker_TryAcquire() {
	ctx := context.Background()
	store := memory.NewStore(anylock.WakeQueue)
	a, _ := anylock.New(store.Client(), anylock.WithHolder("pod-a"))
	b, _ := anylock.New(store.Client(), anylock.WithHolder("pod-b"))
	defer a.Close(ctx)
	defer b.Close(ctx)

	lease, _ := a.TryAcquire(ctx, "job")
	defer lease.Release(ctx)

	_, err := b.TryAcquire(ctx, "job")
	if held, ok := errors.AsType[*anylock.HeldError](err); ok {
		fmt.Println("it runs already, on", held.Holder)
	}
	// Output: it runs already, on pod-a
}

// A waiter that gives up learns both: that its time was over, and that somebody had the lock.
func ExampleLocker_Acquire() {
	ctx := context.Background()
	l, _ := anylock.New(memory.NewStore(anylock.WakeQueue).Client())
	defer l.Close(ctx)
	lease, _ := l.Acquire(ctx, "x")
	defer lease.Release(ctx)

	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_, err := l.Acquire(short, "x")
	fmt.Println(errors.Is(err, context.DeadlineExceeded), errors.Is(err, anylock.ErrHeld))
	// Output: true true
}

func ExampleLease_Done() {
	ctx := context.Background()
	store := memory.NewStore(anylock.WakeQueue)
	l, _ := anylock.New(store.Client(), anylock.WithLogger(nil))
	defer l.Close(ctx)
	lease, _ := l.Acquire(ctx, "x")

	store.Steal("x") // as an administrator who deletes the lock
	<-lease.Done()
	fmt.Println(errors.Is(lease.Err(), anylock.ErrLost))
	fmt.Println(errors.Is(lease.Release(ctx), anylock.ErrLost))
	// Output:
	// true
	// true
}

// The store checks the token with each write, and refuses one that is lower than the highest it has seen.
func ExampleLease_Token() {
	ctx := context.Background()
	l, _ := anylock.New(memory.NewStore(anylock.WakeQueue).Client())
	defer l.Close(ctx)

	var highest anylock.Token
	write := func(token anylock.Token) bool {
		if token < highest {
			return false
		}
		highest = token
		return true
	}
	old, _ := l.Acquire(ctx, "x")
	_ = old.Release(ctx)
	current, _ := l.Acquire(ctx, "x")
	fmt.Println(write(current.Token()), write(old.Token()))
	// Output: true false
}

// On SIGTERM nobody new is let in, those who hold locks finish, and the process ends without a lock left behind.
func ExampleLocker_Drain() {
	locker, _ := anylock.New(memory.NewStore(anylock.WakeQueue).Client())
	terminated, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()

	started, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		_ = locker.Do(context.Background(), "invoice/42", func(context.Context, *anylock.Lease) error {
			close(started)
			time.Sleep(50 * time.Millisecond) // the work
			fmt.Println("finished")
			return nil
		})
	}()

	<-started
	_ = syscall.Kill(syscall.Getpid(), syscall.SIGTERM) // as the orchestrator does
	<-terminated.Done()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second) // less than the orchestrator's patience
	defer cancel()
	fmt.Println("drained:", locker.Drain(ctx))
	<-done
	// Output:
	// finished
	// drained: <nil>
}

func ExampleRequire() {
	_, err := anylock.Open(context.Background(), "memory://",
		anylock.Require(anylock.Guarantees{Exclusion: anylock.ScopeQuorum}))
	fmt.Println(err)
	// Output: anylock: open (memory): required is exclusion of scope quorum, and there is process; choose a store that promises it, or require less
}

func ExampleWithoutRenewal() {
	ctx := context.Background()
	l, _ := anylock.New(memory.NewStore(anylock.WakeQueue).Client(), anylock.WithTTL(time.Minute), anylock.WithoutRenewal())
	defer l.Close(ctx)
	lease, _ := l.Acquire(ctx, "x")
	before := lease.Deadline()
	_ = lease.Renew(ctx) // when it suits the caller
	fmt.Println(lease.Deadline().After(before))
	_ = lease.Release(ctx)
	// Output: true
}
