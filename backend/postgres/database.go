package postgres

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/anylock/anylock"
)

// grace is how long a statement that was sent may go on after its caller has given up. To cut it off would save nothing:
// the server may have carried it out, or may yet, after the release that undoes it. Its answer is better, and the
// connection stays good. Only a server that is silent for so long loses the connection.
const grace = time.Second

// closePatience is how long Close waits for connections that do not end.
const closePatience = 2 * time.Second

// database runs short statements, each in a transaction of its own.
type database struct {
	pool   *pgxpool.Pool
	own    bool // the pool is ours
	config config
	life   context.Context // ends with Close
	end    context.CancelFunc

	// unprepared: something on the way does not keep prepared statements (PgBouncer before 1.21).
	unprepared atomic.Bool
	// isolated: the default isolation level is not READ COMMITTED, so each statement must say that it wants it.
	isolated    atomic.Bool
	creating    sync.Mutex
	inSchema    atomic.Pointer[string] // where the server has found the table
	reconnected atomic.Int64           // when, in Unix nanoseconds

	tokenSQL string
}

func newDatabase(pool *pgxpool.Pool, own bool, c config) *database {
	d := &database{pool: pool, own: own, config: c, tokenSQL: c.tokenStatement("true")}
	d.life, d.end = context.WithCancel(context.Background())
	return d
}

// statement is one statement and what to do with its rows.
type statement struct {
	sql  string
	args []any
	each func(pgx.CollectableRow) error // called for each row; nil: there are none
	// repeatable: to run it twice is the same as once, so a connection that broke is no reason to give up.
	repeatable bool
	// begin is called when the statement is about to leave, each time.
	begin func()
}

// resolve asks once in which schema the server finds the table: all who use it must mean the same by a name, however they
// have written the schema.
func (d *database) resolve(ctx context.Context) error {
	if d.inSchema.Load() != nil {
		return nil
	}
	return d.run(ctx, statement{
		sql:  "SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = to_regclass($1::text)",
		args: []any{d.config.fill("{locks}")},
		each: func(row pgx.CollectableRow) error {
			var schema string
			err := row.Scan(&schema)
			d.inSchema.Store(&schema)
			return err
		},
		repeatable: true,
	})
}

// run runs a statement, and again where the reason why it failed can be removed. It is one round trip.
func (d *database) run(ctx context.Context, s statement) error {
	for try := 1; ; try++ {
		err := d.once(ctx, s)
		if err == nil {
			return nil
		}
		if d.life.Err() != nil {
			return anylock.ErrClosed
		}
		again := false
		if ctx.Err() == nil && try < 5 {
			again, err = d.remedy(ctx, s, err, try)
		}
		if !again {
			return classify(err)
		}
	}
}

// remedy reports whether the statement should be run again.
func (d *database) remedy(ctx context.Context, s statement, err error, try int) (bool, error) {
	switch sqlState(err) {
	case undefinedTable:
		if try > 1 {
			return false, err
		}
		d.creating.Lock() // many find out at the same time
		defer d.creating.Unlock()
		if err := d.createTables(ctx); err != nil {
			return false, err
		}
		return true, nil
	case serializationFailure:
		d.isolated.Store(true)
		return true, err
	case deadlockDetected:
		return true, err
	case readOnlyTransaction: // of a standby, perhaps, which pgx took when the primary had no room
		if d.own {
			d.pool.Reset()
		}
		return try == 1, err
	case adminShutdown, idleSessionTimeout: // it ended before the statement, or ended that: nothing was committed
		if d.own {
			d.pool.Reset() // the others have ended too, most likely
		}
		return true, err
	case undefinedStatement, duplicateStatement, featureNotSupported: // "cached plan must not change result type"
		d.unprepared.Store(true) // others may have found out at the same time, so what it was does not matter
		return try < 3, err
	}
	if s.repeatable && try < 3 && isConnectionError(ctx, err) {
		if d.own {
			d.pool.Reset()
		}
		return true, err
	}
	return false, err
}

func (d *database) once(ctx context.Context, s statement) (err error) {
	conn, err := d.connection(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if sqlState(err) == readOnlyTransaction { // and it would stay so
			closeSoon(conn.Conn())
		}
		conn.Release()
	}()
	if d.own {
		defer whenSilent(ctx, d.reconnect)()
	}
	ctx, cancel := d.patient(ctx)
	defer cancel()
	if s.begin != nil {
		s.begin()
	}
	if !d.isolated.Load() {
		rows, err := conn.Query(ctx, s.sql, d.mode(s.args)...)
		return collect(rows, err, s.each)
	}
	const begin = "BEGIN ISOLATION LEVEL READ COMMITTED"
	if d.unprepared.Load() { // a batch of pgx cannot be told how to send its statements
		return sendUnprepared(ctx, conn.Conn(), begin, s)
	}
	batch := new(pgx.Batch)
	batch.Queue(begin)
	batch.Queue(s.sql, s.args...).Query(func(rows pgx.Rows) error { return collect(rows, nil, s.each) })
	batch.Queue("COMMIT")
	return conn.SendBatch(ctx, batch).Close()
}

// connection takes one from the pool. It says why, before the caller's time is up, when all of them are in use.
func (d *database) connection(ctx context.Context) (*pgxpool.Conn, error) {
	waiting, cancel := ctx, context.CancelFunc(func() {})
	if end, bounded := ctx.Deadline(); bounded {
		waiting, cancel = context.WithDeadline(ctx, end.Add(-time.Until(end)/20))
	}
	defer cancel()
	conn, err := d.pool.Acquire(waiting)
	if err != nil {
		if stat := d.pool.Stat(); waiting.Err() != nil && stat.AcquiredConns() >= stat.MaxConns() {
			return nil, anylock.Unavailable(fmt.Errorf("all %d connections of the pool have been in use all the time; "+
				"raise its MaxConns (pool_max_conns=), or give anylock a pool of its own", stat.MaxConns()))
		}
		return nil, err
	}
	if encoding := conn.Conn().PgConn().ParameterStatus("client_encoding"); encoding != "" && encoding != "UTF8" {
		conn.Release()
		return nil, errEncoding(encoding)
	}
	return conn, nil
}

// errEncoding: letters that the encoding cannot say are lost or others in the server, and then names meet or do not.
func errEncoding(encoding string) error {
	return anylock.Invalidf("the session's client_encoding is %s, in which a name may mean another one; set client_encoding=UTF8 "+
		"for the pool, or take the setting off the role or the database", encoding)
}

func (d *database) mode(args []any) []any {
	if d.unprepared.Load() {
		return append([]any{pgx.QueryExecModeExec}, args...)
	}
	return args
}

func collect(rows pgx.Rows, err error, each func(pgx.CollectableRow) error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if each == nil {
			continue
		}
		if err := each(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// patient returns a context that ends a grace after ctx, or with Close.
func (d *database) patient(ctx context.Context) (context.Context, context.CancelFunc) {
	inner, cancel := context.WithCancel(d.life)
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(grace, cancel)
		context.AfterFunc(inner, func() { timer.Stop() })
	})
	return inner, func() {
		stop()
		cancel()
	}
}

// close ends what is under way, and the pool if it is ours.
func (d *database) close() {
	d.end()
	if !d.own {
		return
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		d.pool.Close()
	}()
	select {
	case <-closed:
	case <-time.After(closePatience): // of a network that swallows everything; it goes on
	}
}
