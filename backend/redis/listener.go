package redis

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anylock/anylock"
)

const (
	tickTime    = 250 * time.Millisecond
	lingerTime  = tickTime         // how long a name stays subscribed after its last watcher
	idleTime    = 10 * time.Second // how long the connection stays open after the last name
	pingAfter   = 3 * time.Second  // of silence
	deadAfter   = 6 * time.Second  // of silence, ping notwithstanding
	connectTime = 5 * time.Second
	maxBackoff  = time.Second
)

// subscriber makes a subscription that opens nothing yet, and says at which server it will be.
type subscriber func(context.Context) (sub *redis.PubSub, address string, err error)

// listener hears of releases over one subscriber connection, which is there only while somebody watches.
//
// One goroutine sends SUBSCRIBE and UNSUBSCRIBE, and for one channel the next only after the one before was answered, so
// they cannot overtake each other. go-redis would reconnect by itself, but silently and without noticing a dead
// connection; so at any trouble the connection is dropped, a new one is made, and all who watch are woken.
type listener struct {
	subscriber subscriber
	classify   func(error) error
	ctx        context.Context //nolint:containedctx // the life of the listener
	cancel     context.CancelFunc
	running    sync.WaitGroup

	mu      sync.Mutex
	address string            // of the server that it listens at
	topics  map[string]*topic // by channel
	alive   bool              // the goroutine is there
	broken  error             // the last attempt to connect failed, and the next is not due yet
	joined  chan struct{}     // there are fresh topics
}

type topicState int

const (
	fresh   topicState = iota // nothing was sent
	joining                   // SUBSCRIBE was sent
	live                      // and answered
	leaving                   // UNSUBSCRIBE was sent
)

type topic struct {
	state    topicState
	join     *join // how the present or next subscription goes
	watchers map[*watcher]struct{}
	left     time.Time // when the last watcher went
	missed   bool      // it was live on a connection that is lost
}

type join struct {
	done chan struct{}
	err  error
}

func newJoin() *join { return &join{done: make(chan struct{})} }

func (j *join) finish(err error) {
	j.err = err
	close(j.done)
}

type watcher struct {
	wake chan struct{}
	stop func() bool
}

func newListener(s subscriber, classify func(error) error) *listener {
	l := &listener{
		subscriber: s, classify: classify,
		topics: make(map[string]*topic), joined: make(chan struct{}, 1),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// watch returns once the subscription is confirmed.
func (l *listener) watch(ctx context.Context, channel string) (<-chan struct{}, error) {
	l.mu.Lock()
	if l.ctx.Err() != nil {
		l.mu.Unlock()
		return nil, anylock.ErrClosed
	}
	if err := l.broken; err != nil {
		l.mu.Unlock()
		return nil, err
	}
	t := l.topics[channel]
	if t == nil {
		t = &topic{join: newJoin(), watchers: make(map[*watcher]struct{})}
		l.topics[channel] = t
	}
	w := &watcher{wake: make(chan struct{}, 1)}
	w.stop = context.AfterFunc(ctx, func() { l.leave(t, w) })
	t.watchers[w] = struct{}{}
	j := t.join
	if !l.alive {
		l.alive = true
		l.running.Go(l.run)
	} else if t.state == fresh {
		l.kick()
	}
	l.mu.Unlock()

	var err error
	select {
	case <-j.done:
		if err = j.err; err == nil {
			return w.wake, nil
		}
	case <-ctx.Done():
		err = anylock.Unavailable(context.Cause(ctx))
	case <-l.ctx.Done():
		err = anylock.ErrClosed
	}
	w.stop()
	l.leave(t, w)
	return nil, err
}

func (l *listener) leave(t *topic, w *watcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(t.watchers, w)
	if len(t.watchers) == 0 {
		t.left = time.Now()
	}
}

// count is how many of the receivers that a server has counted this listener is: one or none.
func (l *listener) count(channel, address string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.address != address {
		return 0
	}
	if t := l.topics[channel]; t != nil && t.state != fresh {
		return 1
	}
	return 0
}

// stop ends everything; wait returns when it has ended.
func (l *listener) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel()
	for _, t := range l.topics {
		for w := range t.watchers {
			w.stop()
		}
	}
}

func (l *listener) wait() { l.running.Wait() }

func (l *listener) kick() {
	select {
	case l.joined <- struct{}{}:
	default:
	}
}

// run makes one connection after the other until nobody watches any more.
func (l *listener) run() {
	backoff := time.Duration(0)
	for {
		healthy, err := l.serve()
		if healthy {
			backoff = 0
		}
		if err == nil || !l.lost(err, backoff > 0) {
			return
		}
		if backoff > 0 {
			select {
			case <-time.After(backoff):
			case <-l.ctx.Done():
			}
		}
		backoff = min(max(2*backoff, 50*time.Millisecond), maxBackoff)
		if !l.retry() {
			return
		}
	}
}

// lost tells those who wait for a confirmation that there will be none, and makes ready for the next connection. It
// reports false, and the goroutine ends, when nobody needs one.
func (l *listener) lost(err error, pause bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	err = l.classify(err)
	for channel, t := range l.topics {
		switch {
		case len(t.watchers) == 0:
			delete(l.topics, channel)
			continue
		case t.state == live:
			t.missed = true
		default:
			t.join.finish(err)
		}
		t.state, t.join = fresh, newJoin()
	}
	if l.ctx.Err() != nil || len(l.topics) == 0 {
		l.alive = false
		return false
	}
	if pause {
		l.broken = err
	}
	return true
}

// retry drops those who have gone while there was no connection.
func (l *listener) retry() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = nil
	for channel, t := range l.topics {
		if len(t.watchers) == 0 {
			delete(l.topics, channel)
		}
	}
	l.alive = l.ctx.Err() == nil && len(l.topics) > 0
	return l.alive
}

// serve uses one connection until it breaks, or until it is not needed any more: then err is nil. It was healthy when
// the server has answered on it at all.
func (l *listener) serve() (healthy bool, err error) {
	ctx, cancel := context.WithCancel(l.ctx)
	sub, address, err := l.subscriber(ctx)
	if err != nil {
		cancel()
		return false, err
	}
	l.mu.Lock()
	l.address = address
	l.mu.Unlock()
	var reader sync.WaitGroup
	var heard, heardEver atomic.Bool
	defer func() {
		cancel()
		_ = sub.Close()
		reader.Wait()
		healthy = heardEver.Load()
	}()
	if err := l.subscribe(ctx, sub); err != nil {
		return false, err
	}
	failed := make(chan error, 1)
	reader.Go(func() {
		for {
			message, err := sub.Receive(ctx)
			if err != nil && !isPingRefused(err) {
				failed <- err
				return
			}
			heard.Store(true)
			heardEver.Store(true)
			l.handle(message)
		}
	})
	tick := time.NewTicker(tickTime)
	defer tick.Stop()
	var silence, unused time.Duration
	for {
		select {
		case <-l.ctx.Done():
			return false, anylock.ErrClosed
		case err := <-failed:
			return false, err
		case <-l.joined:
			if err := l.subscribe(ctx, sub); err != nil {
				return false, err
			}
		case <-tick.C:
			if silence += tickTime; heard.Swap(false) {
				silence = 0
			}
			gone, empty := l.sweep()
			if unused += tickTime; !empty {
				unused = 0
			}
			switch {
			case unused >= idleTime && l.finish():
				return false, nil
			case silence >= deadAfter:
				return false, errSilent
			case len(gone) > 0:
				err = sub.Unsubscribe(ctx, gone...)
			case silence == pingAfter:
				err = sub.Ping(ctx)
			}
			if err != nil {
				return false, err
			}
		}
	}
}

var errSilent = errors.New("the subscriber connection is silent")

// isPingRefused: a user without the right to PING has a connection that works all the same.
func isPingRefused(err error) bool {
	return redis.HasErrorPrefix(err, "NOPERM") && strings.Contains(err.Error(), "'ping'")
}

// subscribe sends SUBSCRIBE for all fresh topics, on a connection that it makes if there is none.
func (l *listener) subscribe(ctx context.Context, sub *redis.PubSub) error {
	l.mu.Lock()
	var channels []string
	for channel, t := range l.topics {
		if t.state == fresh {
			t.state = joining
			channels = append(channels, channel)
		}
	}
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	for some := range slices.Chunk(channels, 1000) {
		if err := sub.Subscribe(ctx, some...); err != nil {
			return err
		}
	}
	return nil
}

// sweep picks the topics to unsubscribe from.
func (l *listener) sweep() (gone []string, empty bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for channel, t := range l.topics {
		if t.state == live && len(t.watchers) == 0 && time.Since(t.left) >= lingerTime {
			t.state, t.join = leaving, newJoin()
			gone = append(gone, channel)
		}
	}
	return gone, len(l.topics) == 0
}

// finish ends the goroutine unless somebody has come in the last moment.
func (l *listener) finish() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alive = len(l.topics) > 0
	return !l.alive
}

func (l *listener) handle(message any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch m := message.(type) {
	case *redis.Message:
		if t := l.topics[m.Channel]; t != nil {
			t.wake()
		}
	case *redis.Subscription:
		t := l.topics[m.Channel]
		switch {
		case t == nil:
		case m.Kind == "subscribe" && t.state == joining:
			t.state = live
			t.join.finish(nil)
			if t.missed {
				t.missed = false
				t.wake()
			}
		case m.Kind == "unsubscribe" && t.state == leaving:
			if len(t.watchers) == 0 {
				delete(l.topics, m.Channel)
				return
			}
			t.state = fresh
			l.kick()
		}
	}
}

func (t *topic) wake() {
	for w := range t.watchers {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}
