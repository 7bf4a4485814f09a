package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/anylock/anylock"
)

const (
	listenTick     = time.Second      // how often the listener looks after itself
	listenLinger   = 2 * time.Second  // how long a lock stays watched that nobody watches
	listenIdle     = time.Minute      // how long the connection stays when nothing is watched
	listenSilence  = 10 * time.Second // after which the connection is tried out
	listenPatience = 5 * time.Second  // for what should be there at once
	listenPoll     = 250 * time.Millisecond

	// mostTopics bounds the locks that one client watches at the same time, since each takes an entry of the server's
	// lock table, which has 6400 by default. Who comes later polls.
	mostTopics = 500
	// topicChunk bounds how many are locked by one statement.
	topicChunk = 50
)

// listener wakes those who wait, for all locks over one connection that exists while somebody waits.
//
// For each lock that is watched the connection has an advisory lock, shared. By that a release sees that somebody waits.
type listener struct {
	connect connectFunc
	life    context.Context
	end     context.CancelFunc
	done    sync.WaitGroup

	mu       sync.Mutex
	topics   map[int64]*topic
	alive    bool // the goroutine runs
	deaf     bool // a pooler is in the way: nothing would ever come
	changed  bool // topics came or went since the goroutine looked
	stopWait context.CancelFunc
}

// topic is a lock that is or was watched.
type topic struct {
	watchers map[chan struct{}]struct{}
	left     time.Time // when the last watcher left
	locked   bool      // on the present connection
	joined   *join     // of those who wait until it is
	missed   bool      // there were watchers before it was locked, who may have missed something
	refused  time.Time // when the server had no room for it
}

// join ends when a topic is listened to, or cannot be.
type join struct {
	done chan struct{}
	err  error
}

var (
	errDeaf   = errors.New("a pooler keeps notifications away")
	errNoRoom = errors.New("the server has no room for another advisory lock")
)

func newJoin() *join { return &join{done: make(chan struct{})} }

func newListener(connect connectFunc) *listener {
	l := &listener{connect: connect, topics: make(map[int64]*topic)}
	l.life, l.end = context.WithCancel(context.Background())
	return l
}

func (l *listener) watch(ctx context.Context, key int64) (<-chan struct{}, error) {
	wake := make(chan struct{}, 1)
	l.mu.Lock()
	t := l.topics[key]
	switch {
	case l.life.Err() != nil:
		l.mu.Unlock()
		return nil, anylock.ErrClosed
	case l.deaf || t == nil && len(l.topics) >= mostTopics:
		l.mu.Unlock()
		return nil, nil
	case t == nil:
		t = &topic{watchers: make(map[chan struct{}]struct{}), joined: newJoin()}
		l.topics[key] = t
	}
	t.watchers[wake] = struct{}{}
	joined := t.joined
	if !t.locked {
		l.changed = true
		if l.stopWait != nil {
			l.stopWait()
		}
		if !l.alive {
			l.alive = true
			l.done.Go(l.run)
		}
	}
	l.mu.Unlock()

	context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(t.watchers, wake)
		t.left = time.Now()
	})
	select {
	case <-joined.done:
	case <-ctx.Done():
		return nil, anylock.Unavailable(context.Cause(ctx))
	}
	switch {
	case errors.Is(joined.err, errDeaf), errors.Is(joined.err, errNoRoom):
		return nil, nil
	case joined.err != nil:
		return nil, joined.err
	}
	return wake, nil
}

// wakeWhileDown wakes all who watch at the pace of polling while there is no connection: nothing else would tell them.
func (l *listener) wakeWhileDown(over <-chan struct{}) {
	tick := time.NewTicker(listenPoll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.mu.Lock()
			for _, t := range l.topics {
				if !t.locked {
					t.wake()
				}
			}
			l.mu.Unlock()
		case <-over:
			return
		}
	}
}

// run keeps a connection as long as somebody wants one.
func (l *listener) run() {
	over := make(chan struct{})
	defer close(over)
	l.done.Go(func() { l.wakeWhileDown(over) })
	for failures := 0; ; failures++ {
		start := time.Now()
		err := l.serve()
		if err == nil {
			return // finish has noted it; whoever has come since has started another
		}
		if l.life.Err() != nil {
			l.fail(anylock.ErrClosed, false)
			return
		}
		deaf := errors.Is(err, errDeaf)
		l.fail(classify(err), deaf)
		if deaf {
			return
		}
		if time.Since(start) > listenTick {
			failures = 0
		}
		select {
		case <-time.After(min(50*time.Millisecond<<min(failures, 10), listenPatience)):
		case <-l.life.Done():
		}
	}
}

// fail tells those who wait to be joined. Topics with watchers from before stay: they are woken by the next connection.
func (l *listener) fail(err error, deaf bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = l.deaf || deaf
	l.stopWait = nil
	if deaf || errors.Is(err, anylock.ErrClosed) {
		l.alive = false
	}
	for key, t := range l.topics {
		t.missed = t.missed || t.locked
		t.locked = false
		l.turnAway(key, t, err)
	}
	if deaf {
		l.wakeAll() // they look again, and then poll
	}
}

func (l *listener) wakeAll() {
	for _, t := range l.topics {
		t.wake()
	}
}

func (t *topic) wake() {
	for w := range t.watchers {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// serve listens on one connection. It returns nil when nobody has wanted it for long.
func (l *listener) serve() error {
	ctx, cancel := context.WithTimeout(l.life, listenPatience)
	defer cancel()
	conn, err := l.connect(ctx)
	if errors.Is(err, errPooler) {
		return errDeaf
	}
	if err != nil {
		return err
	}
	defer closeSoon(conn)
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	heard := time.Now()
	wanted := time.Now()
	for {
		empty, err := l.update(conn)
		if err != nil {
			return err
		}
		if !empty {
			wanted = time.Now()
		}
		if time.Since(wanted) > listenIdle && l.finish() {
			return nil
		}
		if time.Since(heard) > listenSilence {
			ctx, cancel := context.WithTimeout(l.life, listenPatience)
			_, err := conn.Exec(ctx, "SELECT 1", pgx.QueryExecModeSimpleProtocol)
			cancel()
			if err != nil {
				return fmt.Errorf("the listening connection is dead: %w", err)
			}
			heard = time.Now()
		}
		ctx, stop, wait := l.prepareWait()
		if !wait {
			continue
		}
		n, err := conn.WaitForNotification(ctx)
		timeUp := ctx.Err() != nil
		stop()
		switch {
		case err == nil:
			heard = time.Now()
			l.notified(n.Payload)
		case l.life.Err() != nil:
			return l.life.Err()
		case !timeUp || conn.IsClosed():
			return err
		}
	}
}

// prepareWait makes the context of a wait, unless there is something to do.
func (l *listener) prepareWait() (context.Context, context.CancelFunc, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed {
		return nil, nil, false
	}
	ctx, stop := context.WithTimeout(l.life, listenTick)
	l.stopWait = stop
	return ctx, stop, true
}

// update locks the topics that came and unlocks those that went.
func (l *listener) update(conn *pgx.Conn) (empty bool, err error) {
	var came, gone []int64
	l.mu.Lock()
	l.changed = false
	for key, t := range l.topics {
		switch {
		case !t.locked && time.Since(t.refused) < listenTick:
		case !t.locked:
			came = append(came, key)
		case len(t.watchers) == 0 && time.Since(t.left) > listenLinger:
			gone = append(gone, key)
			delete(l.topics, key)
		}
	}
	empty = len(l.topics) == 0
	l.mu.Unlock()

	ctx, cancel := context.WithTimeout(l.life, listenPatience)
	defer cancel()
	const unlock = "SELECT pg_advisory_unlock_shared(k) FROM unnest($1::bigint[]) AS k"
	if len(gone) > 0 {
		if _, err := conn.Exec(ctx, unlock, gone); err != nil {
			return empty, err
		}
	}
	for chunk := range slices.Chunk(came, topicChunk) {
		const lock = "SELECT pg_advisory_lock_shared(k) FROM unnest($1::bigint[]) AS k"
		_, err := conn.Exec(ctx, lock, chunk)
		switch {
		case err == nil:
			l.join(chunk)
		case sqlState(err) == outOfMemory:
			if _, err := conn.Exec(ctx, unlock, chunk); err != nil { // some of them may have been locked
				return empty, err
			}
			l.refuse(chunk)
		default:
			return empty, err
		}
	}
	return empty, nil
}

// join tells those who wait that topics are listened to.
func (l *listener) join(keys []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		t := l.topics[key]
		t.locked = true
		if t.missed {
			t.missed = false
			t.wake()
		}
		close(t.joined.done)
	}
}

// refuse lets those poll for whom the server has no room. Who listened before is told to look, now and at each new try.
func (l *listener) refuse(keys []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		t := l.topics[key]
		t.refused = time.Now()
		l.turnAway(key, t, errNoRoom)
		if t.missed {
			t.wake()
		}
	}
}

// turnAway tells those who wait for a topic why it is not listened to. It stays if somebody listened to it before. It is
// called with mu held.
func (l *listener) turnAway(key int64, t *topic, err error) {
	select {
	case <-t.joined.done:
	default:
		t.joined.err = err
		close(t.joined.done)
	}
	if t.missed && len(t.watchers) > 0 {
		t.joined = newJoin()
	} else {
		delete(l.topics, key)
	}
}

// finish ends the goroutine unless somebody has come in the last moment. Who comes later starts another.
func (l *listener) finish() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.topics) > 0 {
		return false
	}
	l.alive, l.stopWait = false, nil
	return true
}

func (l *listener) notified(payload string) {
	key, err := strconv.ParseUint(payload, 16, 64)
	if err != nil {
		return // not ours
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.topics[int64(key)]; t != nil { //nolint:gosec // all 64 bits are used
		t.wake()
	}
}

func (l *listener) close() {
	l.mu.Lock()
	l.end()
	l.mu.Unlock()
	l.done.Wait()
}
