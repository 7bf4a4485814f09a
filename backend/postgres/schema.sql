-- The last token of each lock, and in mode lease who has it until when, and which IDs ended last. In the other modes the
-- session, a server process, that was granted the lock last: whether it still has it only the server knows.
CREATE TABLE IF NOT EXISTS {locks} (
	name       text COLLATE "C" PRIMARY KEY,
	version    bigint NOT NULL,
	id         text COLLATE "C",
	holder     text NOT NULL DEFAULT '',
	expires_at timestamptz NOT NULL,
	ended      text COLLATE "C" NOT NULL DEFAULT '',
	session    bigint
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.1);

-- Mode rowlock and LockTx: rows to be locked by SELECT ... FOR UPDATE. They contain nothing and are never updated.
CREATE TABLE IF NOT EXISTS {rows} (
	name       text COLLATE "C" PRIMARY KEY,
	created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
