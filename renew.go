package anylock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/anylock/anylock/internal/background"
	"github.com/anylock/anylock/internal/bootclock"
)

// renewInterval is a third of the TTL, or less if the margin is so great that the window would leave no room for more tries.
func (l *Lease) renewInterval() time.Duration {
	return min(l.grant.TTL/3, (l.grant.TTL-l.margin)/2)
}

// renewSlack is how much earlier a lease may be renewed to share a batch.
func renewSlack(interval time.Duration) time.Duration { return interval / 20 }

// renewBatch renews leases that are due and schedules them again.
func (l *Locker) renewBatch(due []*Lease) {
	now := time.Now()
	leases := due[:0]
	var patience time.Duration // that of the most patient: the others' own timers end them, and answers that come late count
	for _, lease := range due {
		if !lease.capped(now) && lease.beginRenewal() {
			leases = append(leases, lease)
			patience = max(patience, lease.renewInterval())
		}
	}
	patience = min(patience, l.cfg.requestTimeout)
	if len(leases) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var failed []Event
	for i, err := range l.renew(ctx, leases) {
		lease := leases[i]
		interval := lease.renewInterval()
		switch {
		case err == nil:
			l.renewals.Add(lease, now.Add(interval), renewSlack(interval))
		case !errors.Is(err, ErrLost):
			l.renewals.Add(lease, time.Now().Add(interval/10), renewSlack(interval))
			failed = append(failed, Event{Name: lease.grant.Name, Token: lease.grant.Token, Elapsed: now.Sub(lease.since), Err: err})
		}
	}
	if len(failed) > 0 {
		l.tell(l.cfg.hooks.RenewFailed, failed...)
		l.troubles.renewFailed.Warn(l.troubles.logger, "anylock: renewal failed and is tried again",
			"name", failed[0].Name, "leases", len(failed), "err", failed[0].Err)
	}
}

// renew asks the store to renew leases, each of which was counted by beginRenewal, and moves their windows. An answer
// that comes after ctx has ended still counts, from when it was asked for.
func (l *Locker) renew(ctx context.Context, leases []*Lease) []error {
	grants := make([]Grant, len(leases))
	for i, lease := range leases {
		grants[i] = lease.grant
	}
	slept := bootclock.SuspendedLately()
	answer := func(renewals []Renewal) []error {
		errs := make([]error, len(leases))
		for i, lease := range leases {
			if len(renewals) != len(leases) {
				errs[i] = fmt.Errorf("the backend answered %d of %d renewals; report this to whoever wrote it", len(renewals), len(leases))
			} else if errs[i] = renewals[i].Err; errs[i] == nil && renewals[i].From.IsZero() {
				errs[i] = errors.New("the backend did not say from when a renewal counts; report this to whoever wrote it")
			}
			switch {
			case errs[i] == nil:
				lease.renewed(renewals[i], slept)
			case errors.Is(errs[i], ErrLost):
				_ = lease.end(l.error("hold", lease.grant.Name, fmt.Errorf("the store does not have it any more: %w", errs[i])))
			default:
				errs[i] = Unavailable(errs[i])
				lease.renewFailed(errs[i])
			}
		}
		return errs
	}
	asked := time.Now()
	renewals, ok := background.Call(ctx, &l.background, nil, l.closing, func() []Renewal { return l.backend.Renew(ctx, grants) },
		func(late []Renewal) { answer(late) })
	defer func() {
		for _, lease := range leases {
			lease.endRenewal()
		}
	}()
	if ok {
		return answer(renewals)
	}
	errs := make([]error, len(leases))
	for i, lease := range leases {
		errs[i] = Unavailable(fmt.Errorf("no answer for %v", time.Since(asked).Round(time.Millisecond)))
		lease.renewFailed(errs[i])
	}
	return errs
}

// checkSleep ends the leases whose window passed while the machine was asleep: their timers slept too.
func (l *Locker) checkSleep() {
	now := bootclock.Suspended()
	if bootclock.Between(l.slept, now) == 0 {
		return
	}
	l.slept = now
	for _, lease := range l.queue.holders() {
		_ = lease.Err()
	}
}
