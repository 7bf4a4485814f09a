package anylock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// The classes of errors. Ask with errors.Is; each error of this package matches the one that applies and no other, except
// where that is said, and the store's or driver's own error stays reachable with errors.As. An operation that is not offered matches [errors.ErrUnsupported].
var (
	// ErrHeld: somebody else has the lock. Trying again later makes sense.
	ErrHeld = errors.New("the lock is held by another holder")
	// ErrLost: the lease has ended without being released. Stop working on what it protected.
	ErrLost = errors.New("the lease was lost")
	// ErrReleased: the lease was released by its holder.
	ErrReleased = errors.New("the lease was released")
	// ErrClosed: the Locker was closed.
	ErrClosed = errors.New("the locker is closed")
	// ErrUnavailable: the store did not answer, or cannot serve at the moment. Who holds the lock is not known.
	ErrUnavailable = errors.New("the store is unavailable")
	// ErrInvalid: the call or the configuration is wrong. Trying again does not help.
	ErrInvalid = errors.New("invalid")
	// ErrMaxHold is the cause of the ErrLost of a lease that reached its [WithMaxHold].
	ErrMaxHold = errors.New("the maximum hold time is over")
)

// HeldError says that a lock is held, and what the store tells about that. It matches [ErrHeld].
type HeldError struct {
	// Holder is the label that the holder gave, if the store knows it.
	Holder string
	// RetryAfter is the time until the lock can become free by expiry at the earliest; zero: not known.
	RetryAfter time.Duration
}

func (e *HeldError) Error() string {
	text := ErrHeld.Error()
	if e.Holder != "" {
		text += " " + strconv.Quote(e.Holder)
	}
	if e.RetryAfter > 0 {
		text += ", expires in " + e.RetryAfter.Round(time.Millisecond).String() + " unless it is renewed"
	}
	return text
}

// Is makes a HeldError match [ErrHeld].
func (*HeldError) Is(target error) bool { return target == ErrHeld }

// Error is what the methods of this package return: which operation on which lock in which backend failed, and why.
type Error struct {
	Op      string // "acquire", "renew", "release", "open", "new", "close", or "hold" for how a lease has ended
	Backend string // "redis"; empty before it is known
	Name    string // the lock; empty when it is not about one
	Err     error  // the cause, see the Err... values
}

func (e *Error) Error() string {
	text := "anylock: " + e.Op
	if e.Name != "" {
		text += " " + quoteName(e.Name)
	}
	if e.Backend != "" {
		text += " (" + e.Backend + ")"
	}
	return text + ": " + e.Err.Error()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Unavailable wraps a driver's error for a [Backend] method whose outcome is unknown. The result matches
// [ErrUnavailable] and what err matches, except context.Canceled and context.DeadlineExceeded: a request's own deadline is
// not its caller's. An err that has another class keeps it, and a nil err stays nil.
func Unavailable(err error) error {
	if err == nil || hasClass(err) {
		return err
	}
	return classifyAs(ErrUnavailable, err)
}

// classes are the sentinels of which an error matches one at most.
var classes = []error{ErrHeld, ErrLost, ErrReleased, ErrClosed, ErrUnavailable, ErrInvalid, errors.ErrUnsupported}

func hasClass(err error) bool {
	return slices.ContainsFunc(classes, func(class error) bool { return errors.Is(err, class) })
}

// cause is an error below one of another class: what it is can be asked, but not its class, and not whether some context
// of ours has ended.
type cause struct{ err error }

func (c *cause) Error() string      { return c.err.Error() }
func (c *cause) As(target any) bool { return errors.As(c.err, target) }

func (c *cause) Is(target error) bool {
	return target != context.Canceled && target != context.DeadlineExceeded && !slices.Contains(classes, target) &&
		errors.Is(c.err, target)
}

// Invalid wraps a driver's error for a [Backend] method that the store refused for good; advice tells what to do about
// it. The result matches [ErrInvalid] and err.
func Invalid(err error, advice string) error {
	if err == nil {
		return nil
	}
	return &classified{class: ErrInvalid, err: &cause{err}, text: advice + ": " + err.Error()}
}

// Invalidf makes an error that matches [ErrInvalid].
func Invalidf(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &classified{class: ErrInvalid, err: err, text: err.Error()}
}

func classify(class, err error) error {
	if err == nil || errors.Is(err, class) {
		return err
	}
	return classifyAs(class, err)
}

// classifyAs gives err a class in place of any that it has.
func classifyAs(class, err error) error {
	return &classified{class: class, err: &cause{err}, text: class.Error() + ": " + err.Error()}
}

// classified gives an error a class without hiding the error.
type classified struct {
	class, err error
	text       string
}

func (e *classified) Error() string   { return e.text }
func (e *classified) Unwrap() []error { return []error{e.class, e.err} }

// quoteName shows a lock's name in an error or a log: quoted, and cut when it is long.
func quoteName(name string) string {
	const most = 80
	if len(name) > most {
		return strconv.Quote(name[:most]) + fmt.Sprintf("... (%d bytes)", len(name))
	}
	return strconv.Quote(name)
}
