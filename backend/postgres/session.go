package postgres

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/anylock/anylock"
)

// keepAliveAfter is how long a session that holds locks says nothing. What is on the way may cut a connection that is idle,
// mostly after a minute, some after seconds; renewals may be further apart than that.
const keepAliveAfter = 3 * time.Second

// session is a connection that holds locks. While it is not used it is listened to, so that its end is known at once.
type session struct {
	*connection
	ttl     time.Duration // the server ends it when it hears nothing for so long
	timeout timeoutFunc
	lost    func(error) // called once if it ends by itself

	alive *time.Timer // of keepAlive

	turn chan struct{} // whoever has put something in may use the connection
	life context.Context
	kill context.CancelFunc // ends whatever is under way on it, and closes it by that

	stopListening context.CancelFunc
	listening     chan struct{} // closed when the listening is over

	mu     sync.Mutex
	dead   error     // why it has ended
	proven time.Time // the server keeps it for a TTL from then on
	heard  time.Time // when it was used last
	given  bool      // its locks were given up
	ping   *ping     // under way
}

// timeoutFunc is the statement that makes the server end a session when it hears nothing for so long. Empty: it must not.
type timeoutFunc func(time.Duration) string

// ping asks whether the session is still there. It is not cut off when whoever started it gives up, since that would end
// the session: it goes on until the server must have ended that.
type ping struct {
	done chan struct{}
	from time.Time
	err  error
}

func newSession(conn *connection, ttl time.Duration, proven time.Time, timeout timeoutFunc, lost func(error)) *session {
	s := &session{
		connection: conn, ttl: ttl, timeout: timeout, lost: lost, turn: make(chan struct{}, 1), proven: proven, heard: time.Now(),
	}
	s.life, s.kill = context.WithCancel(context.Background())
	s.listen()
	if ttl > keepAliveAfter {
		s.mu.Lock()
		s.alive = time.AfterFunc(keepAliveAfter, s.keepAlive)
		s.mu.Unlock()
	}
	return s
}

// keepAlive says something after a silence. That does not prolong the locks: the server is told how much of the TTL is left,
// and ends a session that nobody renews when it would have done so anyway.
func (s *session) keepAlive() {
	s.mu.Lock()
	alive, over, quiet := s.alive, s.dead != nil || s.given, time.Since(s.heard)
	s.mu.Unlock()
	if over || s.life.Err() != nil {
		return
	}
	if quiet < keepAliveAfter {
		alive.Reset(keepAliveAfter - quiet)
		return
	}
	ctx, cancel := s.bounded()
	defer cancel()
	_ = s.use(ctx, true, func(ctx context.Context) error {
		s.mu.Lock()
		left, given := time.Until(s.proven.Add(s.ttl)), s.given
		s.mu.Unlock()
		if left <= 0 || given {
			return nil
		}
		return s.tellTimeout(ctx, left)
	})
	alive.Reset(keepAliveAfter)
}

// extend lets the server keep the session for a whole TTL from now on.
func (s *session) extend(ctx context.Context) error {
	from := time.Now()
	err := s.tellTimeout(ctx, s.ttl)
	if err == nil {
		s.provenAt(from)
	}
	return err
}

func (s *session) tellTimeout(ctx context.Context, d time.Duration) error {
	sql := s.timeout(wholeMilliseconds(d))
	if sql == "" {
		return nil
	}
	_, err := s.Exec(ctx, sql)
	return err
}

// listen reads what the server says unasked: nothing, or that the session is over.
func (s *session) listen() {
	ctx, stop := context.WithCancel(s.life)
	done := make(chan struct{})
	s.stopListening, s.listening = stop, done
	go func() {
		defer close(done)
		for {
			_, err := s.WaitForNotification(ctx)
			if err == nil {
				continue
			}
			if ctx.Err() == nil || s.IsClosed() {
				_ = s.died(err)
			}
			return
		}
	}()
}

// died notes why the session has ended, and tells.
func (s *session) died(err error) error {
	s.mu.Lock()
	first := s.dead == nil
	if first {
		s.dead = fmt.Errorf("%w: its connection has ended: %w", anylock.ErrLost, err)
	}
	dead := s.dead
	s.mu.Unlock()
	if first && s.lost != nil && s.life.Err() == nil {
		s.lost(dead)
	}
	return dead
}

func (s *session) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead
}

// use runs f alone on the connection. Unless keep is set nobody listens to it afterwards, and it is the caller's.
func (s *session) use(ctx context.Context, keep bool, f func(context.Context) error) error {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return anylock.Unavailable(context.Cause(ctx))
	case <-s.life.Done():
		return anylock.ErrLost
	}
	defer func() { <-s.turn }()
	if s.life.Err() != nil {
		return anylock.ErrLost
	}
	s.stopListening()
	<-s.listening
	if err := s.err(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	err := f(ctx)
	if s.IsClosed() {
		dead := s.died(err)
		if sqlState(err) != "" { // the server's own word
			return dead
		}
		return anylock.Unavailable(err)
	}
	s.mu.Lock()
	s.heard, s.given = time.Now(), s.given || !keep
	s.mu.Unlock()
	if keep {
		s.listen()
	}
	return err
}

// busy reports whether somebody uses the connection.
func (s *session) busy() bool { return len(s.turn) > 0 }

// provenAt notes that the server was told to keep the session for a TTL, by something that was sent at from and answered.
// It is called by who uses the session, lest a sign of life tells the server less.
func (s *session) provenAt(from time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if from.After(s.proven) {
		s.proven = from
	}
}

// bounded is the context of a statement that is not broken off for anybody, since that would end the session: until the
// server has been silent for so long that it must have ended it.
func (s *session) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.life, s.ttl+grace)
}

// seize ends the session and gives its connection away, once nobody uses it any more.
func (s *session) seize() *connection {
	s.kill()
	if s.alive != nil {
		s.alive.Stop()
	}
	s.turn <- struct{}{} // and never out again
	s.stopListening()
	<-s.listening
	return s.connection
}

// prove asks the server whether the session is there, and returns the time just before that. The answer, nil, means that
// the server keeps it for a TTL from then on.
func (s *session) prove(ctx context.Context) (time.Time, error) {
	s.mu.Lock()
	if s.dead != nil {
		defer s.mu.Unlock()
		return time.Time{}, s.dead
	}
	p := s.ping
	if p == nil {
		p = &ping{done: make(chan struct{})}
		s.ping = p
		end := s.proven.Add(s.ttl)
		if soonest := time.Now().Add(time.Second); end.Before(soonest) {
			end = soonest // it may be there although nobody has asked for so long
		}
		go func() { //nolint:gosec // the ping must outlive the request that started it
			ctx, cancel := context.WithDeadline(context.Background(), end)
			defer cancel()
			p.err = s.use(ctx, true, func(ctx context.Context) error {
				p.from = time.Now()
				return s.extend(ctx)
			})
			s.mu.Lock()
			s.ping = nil
			s.mu.Unlock()
			close(p.done)
		}()
	}
	s.mu.Unlock()
	select {
	case <-p.done:
		return p.from, p.err
	case <-ctx.Done():
		return time.Time{}, anylock.Unavailable(context.Cause(ctx))
	}
}
