package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// sendUnprepared runs a statement in a transaction of its own, without preparing anything, in one round trip: were BEGIN sent
// before it and COMMIT after it, a client that is cut off in between would leave a pooler's session with the row locked.
func sendUnprepared(ctx context.Context, conn *pgx.Conn, begin string, s statement) error {
	values, types, err := asText(conn.TypeMap(), s.args)
	if err != nil {
		return err
	}
	batch := new(pgconn.Batch)
	batch.ExecParams(begin, nil, nil, nil, nil)
	batch.ExecParams(s.sql, values, types, nil, nil)
	batch.ExecParams("COMMIT", nil, nil, nil, nil)
	results := conn.PgConn().ExecBatch(ctx, batch)
	for i := 0; results.NextResult(); i++ {
		if i != 1 {
			_, err = results.ResultReader().Close()
		} else {
			err = collect(pgx.RowsFromResultReader(conn.TypeMap(), results.ResultReader()), nil, s.each)
		}
		if err != nil {
			break
		}
	}
	closed := results.Close()
	if conn.PgConn().TxStatus() != 'I' && !conn.IsClosed() { // COMMIT was skipped after an error
		if _, rollback := conn.PgConn().Exec(ctx, "ROLLBACK").ReadAll(); rollback != nil {
			return errors.Join(closed, rollback)
		}
	}
	return errors.Join(err, closed)
}

// asText writes arguments as the server reads them.
func asText(types *pgtype.Map, args []any) (values [][]byte, oids []uint32, err error) {
	for _, arg := range args {
		var oid uint32
		switch arg.(type) {
		case string:
			oid = pgtype.TextOID
		case int, int64:
			oid = pgtype.Int8OID
		case []string:
			oid = pgtype.TextArrayOID
		case []int64:
			oid = pgtype.Int8ArrayOID
		default:
			return nil, nil, fmt.Errorf("an argument of type %T has no known form", arg)
		}
		value, err := types.Encode(oid, pgtype.TextFormatCode, arg, []byte{}) // nil would be NULL
		if err != nil {
			return nil, nil, err
		}
		values, oids = append(values, value), append(oids, oid)
	}
	return values, oids, nil
}
