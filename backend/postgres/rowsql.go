package postgres

// rowStatements are the texts that depend on the configuration. All but count have one argument, or begin with it: the name.
type rowStatements struct {
	count               string // a token, if the row is free
	version             string // the last token
	try, wait           string // the own row
	tryOther, waitOther string // the adopted row; empty: there is none
	lookOther           string // whether it is there, and how it is spelled
	look                string // whether it is there, and may be swept; $2 is the retention in microseconds
	insert              string
	holder              string // the label of the session that has the own row, if a lease has it
}

// sweepable is the condition of sql/sweep_rows.sql.
const sweepable = "created_at < clock_timestamp() - $2::bigint * interval '1 microsecond' AND NOT EXISTS (SELECT FROM {locks} AS l " +
	"WHERE l.name = {rows}.name AND l.expires_at > clock_timestamp() - $2::bigint * interval '1 microsecond')"

func (c config) rowStatements() rowStatements {
	s := rowStatements{
		wait:   c.fill("SELECT 1 FROM {rows} WHERE name = $1 FOR UPDATE"),
		look:   c.fill("SELECT " + sweepable + " FROM {rows} WHERE name = $1"),
		insert: c.fill("INSERT INTO {rows} (name) VALUES ($1) ON CONFLICT (name) DO NOTHING"),
	}
	// A row that is locked tells the transaction that has it, and the server tells which one a session is in.
	s.holder = c.fill("SELECT l.holder FROM {locks} AS l, {rows} AS r, pg_stat_get_activity(l.session::integer) AS a " +
		"WHERE l.name = $1 AND r.name = l.name AND a.pid = l.session AND a.backend_xid = r.xmax")
	s.count = c.tokenStatement("EXISTS (SELECT FROM {rows} WHERE name = $1::text FOR UPDATE SKIP LOCKED)")
	s.version = c.fill("SELECT version FROM {locks} WHERE name = $1")
	s.try = s.wait + " SKIP LOCKED" // and not NOWAIT, which would put an ERROR into the server's log for each refusal
	if a := c.adopt; a != nil {
		// FOR KEY SHARE excludes FOR UPDATE, and lets the application update the row from its own connections.
		rows := " FROM " + a.table() + " WHERE " + a.condition()
		s.waitOther = "SELECT " + a.spelled() + " AS spelled" + rows + " FOR KEY SHARE"
		// One row for all that there are, since those that somebody else has are skipped without a word.
		s.tryOther = "WITH mine AS MATERIALIZED (" + s.waitOther + " SKIP LOCKED), counted AS (SELECT count(*) AS n, min(spelled) AS " +
			"spelled FROM mine) SELECT spelled FROM counted WHERE n > 0 AND n = (SELECT count(*)" + rows + ")"
		s.lookOther = "SELECT count(*) > 0, min(" + a.spelled() + ")" + rows
	}
	return s
}
