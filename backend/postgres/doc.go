// Package postgres keeps locks in Postgres 14 or later.
//
//	import _ "github.com/anylock/anylock/backend/postgres"
//
//	l, err := anylock.Open(ctx, "postgres://USER:PASSWORD@localhost:5432/DATABASE")
//
// or, with a pool that you have, anylock.New over [New]. There are three modes, and a fourth way without leases:
//
//   - mode=lease, the default: a row with a version and an expiry, by single statements on the server's clock. Nothing is
//     held open; it works behind PgBouncer in transaction mode.
//   - mode=rowlock: SELECT ... FOR UPDATE in a transaction that lives as long as the lease. The server's own queue decides
//     who is next. It can exclude code that locks rows of your own tables by hand, see [WithAdopted].
//   - mode=advisory: session-level advisory locks, also with keys that other code uses, see [WithKey].
//   - [LockTx] takes a lock of rowlock inside your own transaction.
//
// All clients of a lock must use the same mode: the modes do not exclude each other, except for rowlock and LockTx. A table
// is for the mode that used it first; another mode is an error that says how to move, see [WithMixedModes].
//
// # Guarantees
//
// One holder at a time and growing tokens as long as one server lives and keeps its data. A holder that crashes, stands
// still or is cut off loses the lock after its TTL in every mode: in rowlock and advisory the server itself ends its session
// (idle_in_transaction_session_timeout, idle_session_timeout), and it is asked at every renewal to prevent that.
// Mode lease also survives a restart of the server, since a grant is on disk before it is told. Rowlock and advisory do not:
// the server forgets their locks when it stops, and holders learn it when their connection ends.
// None survives the promotion of an asynchronous replica, nor in mode lease a step forward of the server's clock.
//
// Tokens are a counter in the table, committed before the grant is told; in rowlock and advisory in a transaction of its
// own while the lock is held, or just before, and then only if nobody else has counted since. A lock that is new, or that was
// swept because nobody had used it for the retention (1h, [WithRetention]), begins at the server's time in microseconds, so that its tokens are greater than all before it
// unless the clock has stepped back by more than the retention. A request with a MinToken begins there instead: the time is
// not used. A fleet that mixes requests with and without MinToken should set the retention to longer than the mix lasts.
//
// # URL
//
// postgres:// or postgresql://, as pgx reads it, with several hosts if there are several. Of this package are
//
//	mode=lease|rowlock|advisory
//	schema=NAME, table=NAME   where the backend's own tables are; "anylock" on the search path if absent
//	prefix=TEXT               before each lock's name
//	create=false              do not create tables that are missing
//	mixed=true                use a table that is for another mode, as WithMixedModes
//	retention=D               as WithRetention
//	listen=false|HOST:PORT    mode lease: poll, or LISTEN at the server itself where HOST of the URL is a pooler
//	conns=N                   modes rowlock and advisory: how many connections locks and waiters may take, 16 if absent
//	table=NAME&column=NAME    mode rowlock: adopt the rows of a table, see WithAdopted
//
// sslmode, connect_timeout, target_session_attrs, application_name, options, pool_max_conns and the other parameters of
// pgx work as there. Others are errors.
//
// # Costs
//
// Mode lease: acquire and release are one round trip each, and one commit that waits for the disk; a refused attempt writes
// nothing. Renewing or releasing 1000 is one statement. Waiting takes one connection for all names; a release notifies if,
// and only if, somebody waits for that name.
//
// Mode rowlock: acquire is one round trip with the token, two after a wait and with adopted rows, release is one. A refused
// attempt writes nothing. Each lease and each waiter takes a connection, and a transaction that is open for long holds back
// vacuum in the whole database. When all conns are taken an attempt waits 2.5s at most and then fails as unavailable: it
// never waits for itself.
//
// Mode advisory: acquire is two round trips, one for the token, release is one. Leases with the same TTL share a few
// connections; each waiter takes one.
//
// # Server settings
//
// None has to be changed. max_connections must leave room for conns and 4 more of each process, in mode lease for 5.
// synchronous_commit=off is overridden where it would lose a grant; fsync=off is not. docs/backends/postgres.md has more,
// with the schema.
package postgres
