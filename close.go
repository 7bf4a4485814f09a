package anylock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/anylock/anylock/internal/background"
)

// Drain lets the holders finish: from now on Acquire and TryAcquire are turned away with [ErrClosed], those who wait too,
// and leases are renewed until their holders release them. When none is held any more, or ctx ends, it closes the Locker as
// [Locker.Close] does. It is for the end of a process, on SIGTERM:
//
//	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
//	defer cancel()
//	err := locker.Drain(ctx)
//
// After ctx has ended it needs some request timeouts more at the most ([WithRequestTimeout]). The error is that of Close;
// when ctx ended it also matches ctx's error and says how many holders had not finished.
func (l *Locker) Drain(ctx context.Context) error {
	l.turnAway()
	var cut error
	select {
	case <-l.queue.emptied():
	case <-l.closing:
	case <-ctx.Done():
		if held := l.queue.holders(); len(held) > 0 {
			cut = l.error("drain", "", fmt.Errorf("%w; %d holders had not finished: %s", cancelled(ctx, nil), len(held), leaseNames(held)))
		}
	}
	return errors.Join(cut, l.Close(context.WithoutCancel(ctx)))
}

// turnAway lets nobody in any more.
func (l *Locker) turnAway() {
	l.drainOnce.Do(func() {
		l.queue.close()
		close(l.draining)
	})
}

// Close ends all leases with [ErrClosed], releases their locks in the store, turns away all who wait, and closes the
// backend; [Locker.Drain] lets the holders finish first. ctx bounds it; it is bounded by a few request timeouts anyway. The
// error names locks that may stay in the store until they expire, the first few and how many there are: those whose
// release failed, and those that a request without an answer may have taken. A second Close waits for the first and
// returns the same.
func (l *Locker) Close(ctx context.Context) error {
	l.closeOnce.Do(func() {
		l.turnAway()
		leases := l.queue.holders()
		close(l.closing)
		l.renewals.Stop()
		go func() {
			defer close(l.closed)
			l.closeErr = l.shutDown(leases)
		}()
	})
	select {
	case <-l.closed:
		return l.closeErr
	case <-ctx.Done():
		return l.error("close", "", fmt.Errorf("%w; it goes on in the background", cancelled(ctx, nil)))
	}
}

func (l *Locker) shutDown(leases []*Lease) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*l.cfg.requestTimeout)
	defer cancel()
	for _, lease := range leases {
		_ = lease.end(l.error("hold", lease.grant.Name, ErrClosed))
	}
	var left leftovers
	l.releaseAll(ctx, leases, &left)
	l.settle(ctx) // what is unknown, as long as the backend is open
	for _, u := range l.undoings.end() {
		err := u.err
		if err == nil {
			err = errors.New("no answer to its release")
		}
		left.add(u.grant.Name, err)
		l.notUndone(u, ErrClosed)
	}
	err := left.err()
	last, cancel := context.WithTimeout(context.Background(), l.cfg.requestTimeout)
	defer cancel()
	closeErr, ok := background.Call(last, &l.background, nil, nil, l.backend.Close, func(error) {})
	if !ok {
		closeErr = Unavailable(errors.New("the backend does not close"))
	}
	if err = errors.Join(err, closeErr); err != nil {
		return l.error("close", "", err)
	}
	return nil
}

// settle waits until nothing is going on in the background, or ctx ends.
func (l *Locker) settle(ctx context.Context) {
	l.renewals.Drain(ctx)
	l.background.Wait(ctx)
	l.undoings.Hurry()
	l.undoings.Drain(ctx)
}

// releasesAtOnce is how many batches Close has under way: one that hangs holds up no other.
const releasesAtOnce = 64

// releaseAll releases leases that have ended, in batches, and notes what is left.
func (l *Locker) releaseAll(ctx context.Context, leases []*Lease, left *leftovers) {
	var batches sync.WaitGroup
	places := make(chan struct{}, releasesAtOnce)
	for batch := range slices.Chunk(leases, max(l.desc.MaxBatch, 1)) {
		places <- struct{}{}
		batches.Go(func() {
			defer func() { <-places }()
			grants := make([]Grant, len(batch))
			for i, lease := range batch {
				grants[i] = lease.grant
			}
			bounded, cancel := context.WithTimeout(ctx, l.cfg.requestTimeout)
			defer cancel()
			for i, err := range l.tellStoreAside(bounded, grants, batch) {
				if err != nil && !errors.Is(err, ErrLost) && !batch[i].wasReleased() {
					left.add(batch[i].grant.Name, err)
					l.reportUnreleased(batch[i], err)
				}
			}
		})
	}
	batches.Wait()
}

// leftovers are the locks that Close could not release.
type leftovers struct {
	mu    sync.Mutex
	names []string // the first few
	n     int
	first error
}

func (o *leftovers) add(name string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n++; len(o.names) < mostNamed {
		o.names = append(o.names, name)
	}
	if o.first == nil {
		o.first = err
	}
}

func (o *leftovers) err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n == 0 {
		return nil
	}
	err := fmt.Errorf("%d locks could not be released and may stay until they expire: %s: %w", o.n, someNames(o.names, o.n), &cause{o.first})
	if errors.Is(o.first, ErrInvalid) {
		return classifyAs(ErrInvalid, err)
	}
	return classifyAs(ErrUnavailable, err)
}

// mostNamed is how many locks an error names.
const mostNamed = 5

func someNames(names []string, n int) string {
	quoted := make([]string, 0, mostNamed)
	for _, name := range names[:min(len(names), mostNamed)] {
		quoted = append(quoted, quoteName(name))
	}
	text := strings.Join(quoted, ", ")
	if n > len(quoted) {
		text += fmt.Sprintf(" and %d more", n-len(quoted))
	}
	return text
}

func leaseNames(leases []*Lease) string {
	var names []string
	for _, lease := range leases[:min(len(leases), mostNamed)] {
		names = append(names, lease.grant.Name)
	}
	return someNames(names, len(leases))
}
