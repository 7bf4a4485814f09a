package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anylock/anylock"
)

// adviceSessions is how many sessions share the locks before one is waited for that is busy.
const adviceSessions = 4

const (
	// The session's timeout, which is its locks' TTL, is set in the statement that takes the first lock.
	adviceTrySQL  = "SELECT CASE WHEN pg_try_advisory_lock($1::bigint) THEN set_config('idle_session_timeout', $2::text, false) END IS NOT NULL"
	adviceWaitSQL = "SELECT pg_advisory_lock($1::bigint), set_config('idle_session_timeout', $2::text, false)"
	adviceArmSQL  = "SELECT set_config('idle_session_timeout', $1::text, false)"
	adviceFreeSQL = "SELECT pg_advisory_unlock($1::bigint)"

	// $2 and $3 are the halves of the key, as the server shows them.
	adviceHolderSQL = "SELECT l.holder FROM {locks} AS l, pg_locks AS k WHERE l.name = $1 AND k.pid = l.session AND k.granted AND " +
		"k.locktype = 'advisory' AND k.classid::bigint = $2 AND k.objid::bigint = $3 AND k.objsubid = 1 AND " +
		"k.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)

// advisoryLocks keeps a lock as a session-level advisory lock. Several share a session, whose idle_session_timeout is their
// TTL. A session may take the same advisory lock twice, so it is never asked to: keys says what this process has.
type advisoryLocks struct {
	*database
	conns   *connections
	sweeper sweeper

	mu       sync.Mutex
	closed   bool
	sessions []*sharedSession
	keys     map[int64]*advice // held or asked for by this process
	byID     map[identity]*advice
	opening  map[time.Duration]int // how many sessions of a TTL are being opened
	opened   chan struct{}         // closed when one of them is, or could not be; made anew then
}

// advice is an attempt and then a grant.
type advice struct {
	id      identity
	key     int64
	holder  string        // its label
	over    chan struct{} // closed when the key is free again for this process
	grant   anylock.Grant
	session *sharedSession // nil: not granted yet
	noted   *noted
	until   time.Time // the server keeps it until then unless it is renewed; the session may live longer
	lost    func(error)
	abandon context.CancelFunc
	ended   <-chan struct{} // closed when nobody wants the attempt any more
	wait    bool            // the attempt is in the server's queue: somebody else has the lock
	settled chan struct{}   // closed when the attempt is over
}

// sharedSession is a session and how many use it: attempts and locks.
type sharedSession struct {
	*session
	users int
	armed atomic.Bool // its timeout is set
	// Tries and releases come one at a time each, so that a renewal never waits behind more than one of either.
	tries, releases chan struct{}
}

// inTurn is use for one of many, which queue in a lane of their own. What has not begun when ctx ends never does.
func (s *sharedSession) inTurn(ctx context.Context, lane chan struct{}, f func(context.Context) error) error {
	select {
	case lane <- struct{}{}:
	case <-ctx.Done():
		return anylock.Unavailable(context.Cause(ctx))
	case <-s.life.Done():
		return anylock.ErrLost
	}
	defer func() { <-lane }()
	bounded, cancel := s.bounded()
	defer cancel()
	return s.use(bounded, true, f)
}

func newAdvisoryLocks(d *database, connect connectFunc) *advisoryLocks {
	return &advisoryLocks{
		database: d,
		conns:    newConnections(connect, d.config.conns),
		sweeper:  sweeper{database: d, sql: d.config.fill(sweepSQL)},
		keys:     make(map[int64]*advice),
		byID:     make(map[identity]*advice),
		opening:  make(map[time.Duration]int),
		opened:   make(chan struct{}),
	}
}

func (a *advisoryLocks) introduce(ctx context.Context) error { return a.conns.introduce(ctx) }

func (a *advisoryLocks) describe() anylock.Description {
	return anylock.Description{
		Name:       "postgres",
		Guarantees: sessionGuarantees(),
		MinTTL:     sessionMinTTL, MaxTTL: sessionMaxTTL, MaxBatch: sessionBatch,
	}
}

// keyOf is the advisory lock of a name.
func (a *advisoryLocks) keyOf(name string) int64 {
	if a.config.key != nil {
		return a.config.key(name)
	}
	return hash64("anylock", "lock", a.config.prefix, name)
}

// holderOf is the label of who has the advisory lock, if it is a lease's.
func (a *advisoryLocks) holderOf(ctx context.Context, name string, key int64) string {
	return a.database.holder(ctx, a.config.fill(adviceHolderSQL), a.config.prefix+name, int64(uint64(key)>>32), key&math.MaxUint32) //nolint:gosec // pg_locks shows the two halves
}

func (a *advisoryLocks) acquire(ctx context.Context, req anylock.Request) (anylock.Grant, error) {
	defer whenSilent(ctx, func() { a.conns.dropIdle(); a.reconnect() })()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	id := identity{req.Name, req.ID}
	n, err := a.begin(ctx, req, cancel)
	if err != nil {
		return anylock.Grant{}, err
	}
	if n.session != nil { // a repeated request finds its own lock
		from, err := n.session.prove(ctx)
		if err == nil {
			err = a.extend(n, from)
		}
		grant := n.grant
		grant.From = from
		return grant, err
	}
	// The work goes on if ctx ends, since to break it off would end a session that has other locks. Then it is undone.
	type answer struct {
		grant anylock.Grant
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		grant, session, err := a.lock(ctx, n, req)
		if err == nil && (ctx.Err() != nil || !a.settle(n, grant, session)) {
			_ = a.free(session, n.key)
			err = anylock.Unavailable(errReleasedMeanwhile)
		}
		if err != nil {
			a.forget(id, n)
		}
		close(n.settled)
		answers <- answer{grant, err}
	}()
	select {
	case got := <-answers:
		return got.grant, got.err
	case <-ctx.Done():
		a.giveUpKey(n)
	}
	select { // a quick answer is better than none
	case got := <-answers:
		return got.grant, got.err
	case <-time.After(grace):
		return anylock.Grant{}, anylock.Unavailable(context.Cause(ctx))
	}
}

// begin reserves the key for an attempt, or returns the grant that the ID has already.
func (a *advisoryLocks) begin(ctx context.Context, req anylock.Request, abandon context.CancelFunc) (*advice, error) {
	id, key := identity{req.Name, req.ID}, a.keyOf(req.Name)
	for {
		a.mu.Lock()
		if a.closed {
			a.mu.Unlock()
			return nil, anylock.ErrClosed
		}
		own, taken := a.byID[id], a.keys[key]
		if own != nil && own.session != nil {
			a.mu.Unlock()
			return own, nil
		}
		if taken == nil {
			n := &advice{
				id: id, key: key, holder: req.Holder, lost: req.Lost, abandon: abandon, ended: ctx.Done(), wait: req.Wait,
				over: make(chan struct{}), settled: make(chan struct{}),
			}
			a.byID[id], a.keys[key] = n, n
			a.mu.Unlock()
			return n, nil
		}
		expired := taken.expired()
		pending := taken.session == nil
		a.mu.Unlock()
		var settled <-chan struct{}
		switch {
		case pending && own == nil && !req.Wait && !taken.waits():
			settled = taken.settled // it is leaving, or will know in a moment
		case expired:
			if !a.giveUp(ctx, taken) {
				continue // it was renewed in the last moment
			}
		case own != nil:
			own.abandon() // an earlier attempt of this very request
		case !req.Wait && !pending:
			return nil, &anylock.HeldError{Holder: taken.holder}
		case !req.Wait:
			return nil, &anylock.HeldError{Holder: a.holderOf(ctx, req.Name, key)}
		}
		select {
		case <-taken.over:
		case <-settled:
		case <-ctx.Done():
			return nil, anylock.Unavailable(context.Cause(ctx))
		}
	}
}

// expired reports whether a grant is over. It is called with mu held.
func (n *advice) expired() bool {
	return n.session != nil && (time.Now().After(n.until) || n.session.err() != nil)
}

// extend notes that the server keeps a grant for a TTL from then on, unless the grant was given up meanwhile.
func (a *advisoryLocks) extend(n *advice, from time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byID[n.id] != n {
		return anylock.ErrLost
	}
	if until := from.Add(n.session.ttl); until.After(n.until) {
		n.until = until
	}
	return nil
}

// waits reports whether an attempt is in the queue and wants to be.
func (n *advice) waits() bool {
	select {
	case <-n.ended:
		return false
	default:
		return n.wait
	}
}

// settle makes a grant of an attempt. It reports false if it was given up.
func (a *advisoryLocks) settle(n *advice, grant anylock.Grant, session *sharedSession) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.byID[of(grant)] != n || a.keys[n.key] != n {
		return false
	}
	n.grant, n.session, n.noted, n.until = grant, session, notedNow(), grant.From.Add(grant.TTL)
	return true
}

// forget ends the reservation of the key.
func (a *advisoryLocks) forget(id identity, n *advice) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byID[id] == n {
		delete(a.byID, id)
	}
	a.freeKeyLocked(n)
}

// giveUpKey lets others of this process ask for the key of an attempt that has no grant yet, and will have none: its session may
// hang for long. What it gets there is undone, by one unlock for its one lock; until then others may ask on another session,
// or after it on the same.
func (a *advisoryLocks) giveUpKey(n *advice) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n.session == nil {
		a.freeKeyLocked(n)
	}
}

func (a *advisoryLocks) freeKeyLocked(n *advice) {
	if a.keys[n.key] == n {
		close(n.over)
		delete(a.keys, n.key)
	}
}

// lock takes the lock, and the token.
func (a *advisoryLocks) lock(ctx context.Context, n *advice, req anylock.Request) (anylock.Grant, *sharedSession, error) {
	ttl := wholeMilliseconds(req.TTL)
	take := a.try
	if req.Wait {
		take = a.wait
	}
	var session *sharedSession
	var from time.Time
	var err error
	for range 3 {
		session, from, err = take(ctx, n.key, ttl)
		if !errors.Is(err, errStaleSession) {
			break
		}
	}
	if errors.Is(err, anylock.ErrHeld) {
		err = &anylock.HeldError{Holder: a.holderOf(ctx, req.Name, n.key)}
	}
	if err != nil {
		return anylock.Grant{}, nil, err
	}
	token, err := a.nextToken(ctx, req, session.connection)
	if err != nil {
		_ = a.free(session, n.key)
		return anylock.Grant{}, nil, err
	}
	return anylock.Grant{Name: req.Name, ID: req.ID, Token: token, TTL: ttl, From: from}, session, nil
}

// errStaleSession: the connection had died while nobody used it; another one will do.
var errStaleSession = errors.New("the session had ended before it was used")

// try asks once, on a session that others may share.
func (a *advisoryLocks) try(ctx context.Context, key int64, ttl time.Duration) (*sharedSession, time.Time, error) {
	s, fresh, err := a.share(ctx, ttl)
	if err != nil {
		return nil, time.Time{}, err
	}
	from := time.Now()
	if fresh {
		from = s.taken
	}
	locked := false
	err = s.inTurn(ctx, s.tries, func(ctx context.Context) error {
		defer func() {
			if locked {
				s.armed.Store(true)
				s.provenAt(from)
			}
		}()
		if !fresh {
			from = time.Now()
		}
		return s.QueryRow(ctx, adviceTrySQL, key, fmt.Sprint(ttl.Milliseconds())).Scan(&locked)
	})
	switch {
	case err != nil:
		stale := s.err() != nil && (s.reused || !fresh)
		a.leave(s)
		if stale {
			a.conns.dropIdle()
			return nil, from, errStaleSession
		}
		return nil, from, err
	case !locked:
		a.leave(s)
		return nil, from, new(anylock.HeldError)
	}
	return s, from, nil
}

// wait waits in the server's queue, on a connection that nobody else uses meanwhile.
func (a *advisoryLocks) wait(ctx context.Context, key int64, ttl time.Duration) (*sharedSession, time.Time, error) {
	patient, cancel := a.patient(ctx)
	defer cancel()
	conn, err := a.conns.take(ctx, patient)
	if err != nil {
		return nil, time.Time{}, err
	}
	over := conn.interruptWith(ctx)
	_, err = conn.Exec(patient, adviceWaitSQL, key, fmt.Sprint(min(ttl, unprovenTime).Milliseconds()))
	over()
	var from time.Time
	if err == nil {
		from = time.Now()
		_, err = conn.Exec(patient, adviceArmSQL, fmt.Sprint(ttl.Milliseconds()))
	}
	switch {
	case err == nil:
		s := a.newSession(conn, ttl, from)
		s.armed.Store(true)
		return s, from, nil
	case sqlState(err) != "" && !conn.IsClosed():
		// An advisory lock outlives the statement that took it: it may have been cancelled a moment too late.
		if _, undo := conn.Exec(patient, "SELECT pg_advisory_unlock_all(), set_config('idle_session_timeout', '0', false)"); undo != nil {
			a.conns.drop(conn)
		} else {
			a.conns.give(conn)
		}
	default:
		if conn.reused && isConnectionError(ctx, err) {
			a.conns.dropIdle()
			err = errStaleSession
		}
		a.conns.drop(conn)
	}
	return nil, from, err
}

// share returns a session with this TTL and counts the caller as one of its users.
func (a *advisoryLocks) share(ctx context.Context, ttl time.Duration) (s *sharedSession, fresh bool, err error) {
	for {
		s, opened := a.findSession(ttl)
		switch {
		case s != nil:
			return s, false, nil
		case opened == nil:
			s, err := a.openSession(ctx, ttl)
			return s, err == nil, err
		}
		select {
		case <-opened:
		case <-ctx.Done():
			return nil, false, anylock.Unavailable(context.Cause(ctx))
		}
	}
}

// findSession returns a session that can be shared; or a channel to wait on until one of those has been opened that are
// enough for all; or neither: then the caller opens one.
func (a *advisoryLocks) findSession(ttl time.Duration) (s *sharedSession, opened <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	alike := 0
	for _, s := range a.sessions {
		if s.ttl != ttl || s.err() != nil {
			continue
		}
		alike++
		if !s.busy() || alike == adviceSessions {
			s.users++
			return s, nil
		}
	}
	if alike+a.opening[ttl] >= adviceSessions {
		return nil, a.opened
	}
	a.opening[ttl]++
	return nil, nil
}

func (a *advisoryLocks) openSession(ctx context.Context, ttl time.Duration) (*sharedSession, error) {
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.opening[ttl]--; a.opening[ttl] == 0 {
			delete(a.opening, ttl)
		}
		close(a.opened)
		a.opened = make(chan struct{})
	}()
	patient, cancel := a.patient(ctx)
	defer cancel()
	conn, err := a.conns.take(ctx, patient)
	if err != nil {
		return nil, err
	}
	return a.newSession(conn, ttl, time.Now()), nil
}

// timeoutSQL does nothing before the session has a lock: it may be given back as it is.
func (s *sharedSession) timeoutSQL(d time.Duration) string {
	if !s.armed.Load() {
		return ""
	}
	return fmt.Sprintf("SET idle_session_timeout = %d", d.Milliseconds())
}

// newSession makes a session that others may share, with one user.
func (a *advisoryLocks) newSession(conn *connection, ttl time.Duration, proven time.Time) *sharedSession {
	s := &sharedSession{users: 1, tries: make(chan struct{}, 1), releases: make(chan struct{}, 1)}
	a.mu.Lock()
	defer a.mu.Unlock()
	s.session = newSession(conn, ttl, proven, s.timeoutSQL, func(err error) { a.ended(s, err) })
	a.sessions = append(a.sessions, s)
	return s
}

// ended tells the holders whose session has ended.
func (a *advisoryLocks) ended(s *sharedSession, err error) {
	var lost []func(error)
	a.mu.Lock()
	for _, n := range a.byID {
		if n.session == s && n.lost != nil {
			lost = append(lost, n.lost)
		}
	}
	a.mu.Unlock()
	for _, f := range lost {
		f(err)
	}
}

// leave counts a user less. After the last one the session is shared no more.
func (a *advisoryLocks) leave(s *sharedSession) {
	a.mu.Lock()
	s.users--
	i := slices.Index(a.sessions, s)
	last := s.users == 0 && i >= 0
	if last {
		a.sessions = slices.Delete(a.sessions, i, i+1)
	}
	a.mu.Unlock()
	switch {
	case !last:
	case s.armed.Load():
		go a.retire(s) // nobody waits for that
	default:
		a.conns.give(s.seize())
	}
}

// retire gives back the connection of a session that has no locks any more.
func (a *advisoryLocks) retire(s *sharedSession) {
	conn := s.seize()
	ctx, cancel := context.WithTimeout(a.life, grace)
	defer cancel()
	if _, err := conn.Exec(ctx, "SET idle_session_timeout = 0"); err != nil {
		a.conns.drop(conn)
		return
	}
	a.conns.give(conn)
}

// free gives up a lock. What it finds not to be held is an error: nobody else could have given it up.
func (a *advisoryLocks) free(s *sharedSession, key int64) error {
	held := false
	err := s.inTurn(context.Background(), s.releases, func(ctx context.Context) error {
		return s.QueryRow(ctx, adviceFreeSQL, key).Scan(&held)
	})
	a.leave(s) // and not before, or somebody else might retire it
	if err == nil && !held {
		err = fmt.Errorf("%w: its session did not have the advisory lock", anylock.ErrLost)
	}
	return err
}

// watch: the server's queue wakes.
func (a *advisoryLocks) watch(context.Context, string) (<-chan struct{}, error) { return nil, nil }

func (a *advisoryLocks) renew(ctx context.Context, grants []anylock.Grant) []anylock.Renewal {
	renewals := make([]anylock.Renewal, len(grants))
	asked := make(map[*sharedSession][]int)
	found, notes := make([]*advice, len(grants)), make([]*noted, len(grants))
	now := time.Now()
	a.mu.Lock()
	for i, g := range grants {
		n := a.byID[of(g)]
		if n == nil || n.session == nil || now.After(n.until) {
			renewals[i].Err = anylock.ErrLost
			continue
		}
		found[i] = n
		asked[n.session] = append(asked[n.session], i)
	}
	a.mu.Unlock()
	var asking sync.WaitGroup
	for s, positions := range asked {
		asking.Go(func() {
			from, err := s.prove(ctx)
			for _, i := range positions {
				renewals[i] = anylock.Renewal{From: from, TTL: s.ttl, Err: err}
				if err == nil {
					renewals[i].Err = a.extend(found[i], from)
					notes[i] = found[i].noted
				}
			}
		})
	}
	asking.Wait()
	a.sweeper.keep(grants, notes)
	a.expire()
	return renewals
}

// expire gives up the locks that nobody has renewed although their session lives for the sake of others.
func (a *advisoryLocks) expire() {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range a.byID {
		if n.session != nil && now.After(n.until) {
			go func() { a.giveUp(context.Background(), n) }()
		}
	}
}

// giveUp releases a grant that has expired. It reports false if that has changed.
func (a *advisoryLocks) giveUp(ctx context.Context, n *advice) bool {
	a.mu.Lock()
	if a.byID[n.id] != n { // somebody else does
		a.mu.Unlock()
		return true
	}
	if !n.expired() {
		a.mu.Unlock()
		return false
	}
	delete(a.byID, n.id)
	a.mu.Unlock()
	_ = a.unlock(ctx, n)
	return true
}

func (a *advisoryLocks) release(ctx context.Context, grants []anylock.Grant) []error {
	results := make([]error, len(grants))
	var asking sync.WaitGroup
	for i, g := range grants {
		asking.Go(func() { results[i] = a.release1(ctx, of(g)) })
	}
	asking.Wait()
	a.sweeper.sometimes()
	return results
}

func (a *advisoryLocks) release1(ctx context.Context, id identity) error {
	a.mu.Lock()
	n := a.byID[id]
	if n == nil {
		a.mu.Unlock()
		return anylock.ErrLost
	}
	delete(a.byID, id)
	session, expired := n.session, time.Now().After(n.until)
	a.mu.Unlock()
	if session == nil {
		n.abandon()
		select {
		case <-n.settled:
			return nil
		case <-ctx.Done():
			return anylock.Unavailable(context.Cause(ctx))
		}
	}
	err := a.unlock(ctx, n)
	if err == nil && expired {
		return fmt.Errorf("%w: it had expired", anylock.ErrLost)
	}
	return err
}

// unlock gives up the lock of a grant that byID has no more.
func (a *advisoryLocks) unlock(ctx context.Context, n *advice) error {
	done := make(chan error, 1)
	go func() { // not broken off, as above
		err := a.free(n.session, n.key)
		a.forget(n.id, n)
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return anylock.Unavailable(context.Cause(ctx))
	}
}

func (a *advisoryLocks) close() {
	a.sweeper.wait()
	a.mu.Lock()
	a.closed = true
	sessions := a.sessions
	a.sessions = nil
	for _, n := range a.byID {
		if n.session == nil {
			n.abandon()
		}
	}
	a.mu.Unlock()
	for _, s := range sessions {
		a.conns.drop(s.seize())
	}
	a.conns.close()
	a.database.close()
}
