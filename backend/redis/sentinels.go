package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anylock/anylock"
)

const (
	// sentinelTime is how long the sentinels have to say who is master: a part of what a request may take.
	sentinelTime = time.Second
	// sentinelGrace is how long the first answer waits for one that knows of a later promotion.
	sentinelGrace = 50 * time.Millisecond
)

// sentinels dials whichever server the sentinels call the master. All of them are asked side by side, each time that a
// connection is made, so one that hangs holds up nothing; the client of go-redis asks one, and waits for it.
type sentinels struct {
	name    string
	options []*redis.Options // of the sentinels
	own     *dialer          // of connections to them
	master  *dialer          // of connections to masters

	mu      sync.Mutex
	current string
	closed  bool
	asking  sync.WaitGroup
}

// newSentinels takes the sentinels from what a URL says.
func newSentinels(o *redis.UniversalOptions, tls *tls.Config, master *dialer) *sentinels {
	s := &sentinels{name: o.MasterName, own: newDialer(tls), master: master}
	for _, addr := range o.Addrs {
		s.options = append(s.options, &redis.Options{
			Addr: addr, Username: o.SentinelUsername, Password: o.SentinelPassword, Dialer: s.own.dial,
			ContextTimeoutEnabled: true, DialTimeout: sentinelTime, ReadTimeout: sentinelTime, WriteTimeout: sentinelTime,
			MaxRetries: -1, DialerRetries: 1, PoolSize: 1, DisableIdentity: true, MaintNotificationsConfig: o.MaintNotificationsConfig,
		})
	}
	return s
}

// dial connects to the present master. Connections to an earlier one are ended: it may be frozen, and each would be waited for.
func (s *sentinels) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	addr, err := s.ask(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	changed := s.current != "" && s.current != addr
	s.current = addr
	s.mu.Unlock()
	if changed {
		s.master.closeOthers(addr)
	}
	return s.master.dial(ctx, network, addr)
}

// word is what a sentinel says.
type word struct {
	addr  string
	epoch int64 // of the promotion
	err   error
}

// ask returns the address of the master that was promoted last, of those that the sentinels name.
func (s *sentinels) ask(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, sentinelTime)
	words := make(chan word, len(s.options))
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		cancel()
		return "", anylock.ErrClosed
	}
	var asking sync.WaitGroup
	for _, o := range s.options {
		asking.Go(func() { words <- s.askOne(ctx, o) })
	}
	s.asking.Go(func() { asking.Wait(); cancel() })
	s.mu.Unlock()

	best := word{}
	var errs []error
	var grace <-chan time.Time
	for range s.options {
		select {
		case w := <-words:
			switch {
			case w.err != nil:
				errs = append(errs, w.err)
				continue
			case best.addr == "" || w.epoch > best.epoch:
				best = w
			}
			if grace == nil {
				grace = time.After(sentinelGrace)
			}
			continue
		case <-grace:
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("no answer for %v", sentinelTime))
		}
		break
	}
	if best.addr != "" {
		return best.addr, nil
	}
	for _, err := range errs {
		if errors.Is(err, anylock.ErrInvalid) {
			return "", err
		}
	}
	return "", anylock.Unavailable(fmt.Errorf("no sentinel says who is master: %w", errors.Join(errs...)))
}

func (s *sentinels) askOne(ctx context.Context, o *redis.Options) word {
	options := *o
	client := redis.NewClient(&options)
	defer func() { _ = client.Close() }()
	reply, err := client.Do(ctx, "SENTINEL", "MASTER", s.name).Result()
	if err != nil {
		return word{err: fmt.Errorf("sentinel %s: %w", o.Addr, classifySentinel(err))}
	}
	fields := map[string]string{}
	switch reply := reply.(type) {
	case map[any]any:
		for k, v := range reply {
			fields[fmt.Sprint(k)] = fmt.Sprint(v)
		}
	case []any:
		for i := 0; i+1 < len(reply); i += 2 {
			fields[fmt.Sprint(reply[i])] = fmt.Sprint(reply[i+1])
		}
	}
	epoch, _ := strconv.ParseInt(fields["config-epoch"], 10, 64)
	if fields["ip"] == "" || fields["port"] == "" {
		return word{err: fmt.Errorf("sentinel %s: %w", o.Addr, errAnswer)}
	}
	return word{addr: net.JoinHostPort(fields["ip"], fields["port"]), epoch: epoch}
}

// classifySentinel gives advice that fits the sentinels, which have users and passwords of their own.
func classifySentinel(err error) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "No such master"):
		return anylock.Invalidf("the sentinels do not know the master that sentinel= names")
	case strings.HasPrefix(text, "NOAUTH"):
		return anylock.Invalid(err, "the sentinels ask for a password, write sentinelpassword= and, if they have users, sentineluser=")
	case strings.HasPrefix(text, "WRONGPASS"), strings.Contains(text, "invalid password"):
		return anylock.Invalid(err, "sentineluser= or sentinelpassword= is wrong")
	case strings.Contains(text, "no password is set"):
		return anylock.Invalid(err, "the sentinels have no password, leave sentinelpassword= out")
	case strings.HasPrefix(text, "NOPERM"):
		return anylock.Invalid(err, "the user of the sentinels lacks the right to SENTINEL MASTER, see sentineluser=")
	}
	return classify(err, false)
}

// Close ends the questions under way.
func (s *sentinels) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	err := s.own.Close()
	s.asking.Wait()
	return err
}
