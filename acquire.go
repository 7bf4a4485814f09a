package anylock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/anylock/anylock/internal/bootclock"
)

// acquisition is one call of Acquire or TryAcquire, until it has a lease or gives up.
type acquisition struct {
	*Locker
	ctx    context.Context
	cfg    *config
	name   string
	wait   bool
	called time.Time

	id         string
	waiting    bool       // the hook was told
	held       *HeldError // the store's last word on who has the lock
	failing    time.Time  // since when the store has failed; zero: it does not
	lastErr    error      // of a store that fails
	unknown    bool       // the store may have granted id
	wake       <-chan struct{}
	stopWaking context.CancelFunc
	deaf       bool // the backend cannot wake
	woken      bool // and has not asked since
}

func (l *Locker) acquire(ctx context.Context, name string, wait bool, opts []AcquireOption) (*Lease, error) {
	a := &acquisition{Locker: l, ctx: ctx, cfg: &l.cfg, name: name, wait: wait, called: time.Now()}
	lease, err := a.run(opts)
	if err != nil {
		return nil, l.error("acquire", name, err)
	}
	return lease, nil
}

func (a *acquisition) run(opts []AcquireOption) (*Lease, error) {
	if err := CheckName(a.name); err != nil {
		return nil, err
	}
	if len(opts) > 0 {
		cfg := a.Locker.cfg
		for _, o := range opts {
			if o == nil {
				return nil, Invalidf("an option is nil")
			}
			o.apply(&cfg)
		}
		if err := cfg.check(a.desc); err != nil {
			return nil, err
		}
		a.cfg = &cfg
	}
	select {
	case <-a.draining:
		return nil, fmt.Errorf("%w: a closed locker was used: %w", ErrInvalid, ErrClosed)
	default:
	}
	if a.ctx.Err() != nil {
		return nil, cancelled(a.ctx, nil)
	}
	if err := a.queue.enter(a.ctx, a.name, !a.wait, a.cfg.requestTimeout, a.noteWaiting); err != nil {
		return nil, err
	}
	lease, err := a.inFront()
	if err != nil {
		return nil, err
	}
	returning := false
	defer func() {
		if !returning { // the hook has ended this goroutine: nobody gets the lease
			_ = lease.end(a.error("hold", a.name, ErrReleased))
			a.undoLease(lease, 0)
		}
	}()
	a.call(a.cfg.hooks.Acquired, Event{Name: a.name, Token: lease.Token(), Elapsed: time.Since(a.called)})
	returning = true
	return lease, nil
}

// inFront gets a lease for the one in front of the local queue, or leaves it.
func (a *acquisition) inFront() (lease *Lease, err error) {
	a.background.Begin() // Close waits for what is found out here, to undo it
	defer a.background.Done()
	defer func() {
		if lease == nil {
			a.queue.leave(a.name)
		}
	}()
	select {
	case <-a.draining:
		return nil, ErrClosed
	default:
	}
	lease, err = a.stand()
	if err != nil && a.wait && a.lastErr != nil && a.ctx.Err() == nil {
		a.queue.fail(a.name, a.lastErr, a.failing, a.cfg.requestTimeout*9/10)
	}
	return lease, err
}

// stand stands at the store, in front of the local queue, until it has the lock or must give up.
func (a *acquisition) stand() (*Lease, error) {
	defer func() {
		if a.stopWaking != nil {
			a.stopWaking()
		}
	}()
	a.id = newID()
	queued := false // whether the next attempt joins the store's own queue
	for n := 0; ; n++ {
		asked := time.Now()
		lease, err := a.attempt(queued)
		a.noteRace(err)
		switch {
		case err == nil:
			return lease, nil
		case isStopped(err):
			a.undoUnknown()
			return nil, err
		case errors.Is(err, ErrHeld):
			a.failing, a.lastErr = time.Time{}, nil
			a.refused(err)
			if !a.wait {
				return nil, a.held
			}
			if a.desc.Guarantees.Wake == WakeQueue && !queued {
				queued = true
				continue
			}
		case !isUnknown(err):
			a.undoUnknown()
			return nil, err
		default:
			if a.failing.IsZero() {
				a.failing, n = asked, 0
				if queued { // the store was well while the request was in its queue
					a.failing = time.Now()
				}
			}
			queued = false               // a try tells whether the store is well again
			a.held, a.lastErr = nil, err // who has it is not known any more
			a.queue.forget(a.name)
			if !a.wait || time.Since(a.failing) >= a.cfg.requestTimeout {
				a.undoUnknown()
				return nil, err
			}
			a.cfg.logger.Debug("anylock: acquire failed and is tried again", "backend", a.desc.Name, "name", a.name, "err", err)
		}
		if err := a.pause(n, err); err != nil {
			a.undoUnknown()
			return nil, err
		}
	}
}

// stopped marks the error of an attempt that ended because its caller gave up, not because of the store.
type stopped struct{ error }

func (s stopped) Unwrap() error { return s.error }

func isStopped(err error) bool { _, is := errors.AsType[stopped](err); return is }

// attempt asks the store once. It returns when the caller's context, the request's time or the Locker ends, even if the
// backend does not.
func (a *acquisition) attempt(queued bool) (*Lease, error) {
	if !queued {
		places := a.admission.acquires
		if err := a.admission.enter(a.ctx, places, a.draining, a.cfg.requestTimeout); errors.Is(err, errNoAnswer) {
			return nil, a.unanswered(0)
		} else if err != nil {
			return nil, err
		}
		defer a.admission.leave(places)
	}
	lease := &Lease{locker: a.Locker, holder: a.cfg.holder}
	request := Request{
		Name: a.name, ID: a.id, TTL: a.cfg.ttl, Wait: queued,
		Holder: a.cfg.holder, MinToken: a.cfg.minToken, Lost: lease.lostInStore,
	}
	sent, slept := time.Now(), bootclock.SuspendedLately()
	handled := func() time.Time { // by then at the latest, if it is not handled in the future
		if queued {
			return time.Now()
		}
		return sent
	}
	call := func(ctx context.Context) (Grant, error) { return a.backend.Acquire(ctx, request) }
	late := func(g Grant, err error) {
		if err == nil || isUnknown(err) {
			a.undo(grant(g, request), handled(), 0)
		}
	}
	var g Grant
	var err error
	if queued {
		g, err = askQueued(a.ctx, a.Locker, call, late)
	} else {
		g, err = ask(a.ctx, a.Locker, false, call, late)
	}
	if err == nil || !isUnknown(err) {
		a.admission.note()
	}
	switch {
	case err == nil:
		a.unknown = false
		return a.begin(lease, grant(g, request), slept)
	case errors.Is(err, errNoAnswer):
		// It may still come, and then it is undone at once. It may be lost too: do not wait for it.
		a.undo(grant(Grant{}, request), handled(), undoPatience)
		a.unknown = false
		a.id = newID()
		after := time.Since(sent)
		if queued { // nobody expects an answer from a queue
			after = 0
		}
		return nil, a.unanswered(after)
	case isUnknown(err):
		a.unknown = true
		return nil, Unavailable(err)
	}
	a.unknown = false
	return nil, err
}

// unanswered says why nobody waits for an attempt's answer any more.
func (a *acquisition) unanswered(after time.Duration) error {
	select {
	case <-a.draining:
		return ErrClosed
	default:
	}
	if !ended(a.ctx) {
		return Unavailable(fmt.Errorf("no answer for %v", after.Round(time.Millisecond)))
	}
	err := cancelled(a.ctx, a.held)
	switch {
	case a.lastErr != nil:
		err = fmt.Errorf("%w; before that: %w", err, a.lastErr)
	case after > askPatience:
		err = fmt.Errorf("%w; the store had not answered for %v", err, after.Round(time.Millisecond))
	}
	return stopped{err}
}

// begin makes a lease of a grant.
func (a *acquisition) begin(lease *Lease, g Grant, slept time.Duration) (*Lease, error) {
	undo := func(err error) (*Lease, error) {
		a.undo(g, time.Now(), 0)
		return nil, err
	}
	lease.grant = g
	lease.since = time.Now()
	lease.margin = a.cfg.marginOf(g.TTL)
	if a.cfg.maxHold > 0 {
		lease.cap = lease.since.Add(a.cfg.maxHold)
	}
	if now := time.Now(); g.From.After(now) { // nobody can have asked in the future
		g.From = now
	}
	lease.window = lease.windowOf(g.From, g.TTL, slept)
	left := lease.window.leftLately()
	if left <= 0 {
		a.id = newID()
		return undo(Unavailable(fmt.Errorf("the answer took %v, too long for a lease of %v", time.Since(g.From).Round(time.Millisecond), g.TTL)))
	}
	if g.Token <= 0 {
		return undo(Invalidf("the backend granted token %d; report this to whoever wrote it", g.Token))
	}
	lease.mu.Lock()
	defer lease.mu.Unlock()
	if lease.unborn != nil {
		a.id = newID()
		return undo(Unavailable(lease.unborn))
	}
	if !a.queue.hold(a.name, lease) {
		return undo(ErrClosed)
	}
	lease.started = true
	lease.timer = time.AfterFunc(left, lease.expire)
	if !a.cfg.noRenewal {
		interval := lease.renewInterval()
		first := time.Duration(float64(interval) * (0.8 + 0.2*rand.Float64()))
		a.renewals.Add(lease, g.From.Add(first), renewSlack(interval))
	}
	return lease, nil
}

// grant completes what a backend returned with what it was asked.
func grant(g Grant, r Request) Grant {
	g.Name, g.ID = r.Name, r.ID
	if g.TTL <= 0 {
		g.TTL = r.TTL
	}
	return g
}

// isUnknown reports whether the store may have granted what it returned err for.
func isUnknown(err error) bool {
	return !errors.Is(err, ErrHeld) && !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrClosed) && !errors.Is(err, errors.ErrUnsupported)
}

func (a *acquisition) undoUnknown() {
	if a.unknown {
		a.undo(Grant{Name: a.name, ID: a.id, TTL: a.cfg.ttl}, time.Now(), 0)
	}
}

// refused notes the store's word on who has the lock.
func (a *acquisition) refused(err error) {
	if !errors.As(err, &a.held) {
		a.held = new(HeldError)
	}
	a.queue.refuse(a.name, a.held)
	// Nothing is under way while the hook runs, and it may call Close, which would wait for it.
	a.background.Done()
	defer a.background.Begin()
	a.noteWaiting(a.held)
}

// noteRace notes what the attempt after a wake-up has found.
func (a *acquisition) noteRace(err error) {
	if a.woken && (err == nil || errors.Is(err, ErrHeld)) {
		a.races.ran(err == nil)
	}
	a.woken = false
}

// noteWaiting tells the hook, once.
func (a *acquisition) noteWaiting(held error) {
	if !a.wait || a.waiting {
		return
	}
	a.waiting = true
	a.call(a.cfg.hooks.Waiting, Event{Name: a.name, Elapsed: time.Since(a.called), Err: held})
	a.cfg.logger.Debug("anylock: waiting", "backend", a.desc.Name, "name", a.name)
}
