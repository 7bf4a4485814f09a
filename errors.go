package anylock

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// The classes of errors. Ask with errors.Is; each error of this package matches the one that applies, and the store's or
// driver's own error stays reachable with errors.As. An operation that is not offered matches [errors.ErrUnsupported].
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
// [ErrUnavailable] and err. A nil err stays nil.
func Unavailable(err error) error { return classify(ErrUnavailable, err) }

// Invalid wraps a driver's error for a [Backend] method that the store refused for good; advice tells what to do about
// it. The result matches [ErrInvalid] and err.
func Invalid(err error, advice string) error {
	if err == nil {
		return nil
	}
	return &classified{class: ErrInvalid, err: err, text: advice + ": " + err.Error()}
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
	return &classified{class: class, err: err, text: class.Error() + ": " + err.Error()}
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
