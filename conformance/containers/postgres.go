package containers

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/testcontainers/testcontainers-go"
)

var (
	postgresImage  = image{local: "anylock/postgres:17", official: "postgres:17"}
	pgBouncerImage = image{local: "anylock/pgbouncer:1", official: "bitnami/pgbouncer:1"}
)

const (
	postgresUser     = "postgres"
	postgresPassword = "container-secret"
	postgresDatabase = "postgres"

	postgresStart = "/start-postgres.sh"
	bouncerConfig = "/pgbouncer.ini"
	bouncerUsers  = "/pgbouncer-users.txt"
	bouncerStart  = "/start-pgbouncer.sh"
)

// postgresScript makes a database the first time, and finds it again when the container is restarted.
const postgresScript = `#!/bin/sh
set -e
bin=$(echo /usr/lib/postgresql/*/bin)
data=/anylock/data
if [ ! -e $data/PG_VERSION ]; then
	mkdir -p $data
	chown -R postgres /anylock
	chmod 700 $data
	printf '%s' ` + postgresPassword + ` >/anylock/password
	setpriv --reuid=postgres --regid=postgres --clear-groups \
		"$bin/initdb" -D $data -U ` + postgresUser + ` -A scram-sha-256 --pwfile=/anylock/password -E UTF8 --no-sync >/dev/null
	printf 'host\tall\tall\tall\tscram-sha-256\n' >>$data/pg_hba.conf
	printf 'host\treplication\tall\tall\tscram-sha-256\n' >>$data/pg_hba.conf
fi
rm -f $data/postmaster.pid # of a container that was killed
exec setpriv --reuid=postgres --regid=postgres --clear-groups "$bin/postgres" -D $data "$@"
`

// Postgres starts a server of Postgres 17 with the database postgres, which Username and Password open; they are a
// superuser's. Killed, it comes back with what it had committed. ANYLOCK_TEST_POSTGRES, as user:password@host:port/database,
// names a server to use instead, for calls without options other than [Shared].
func Postgres(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	o := collect(opts)
	if named := os.Getenv("ANYLOCK_TEST_POSTGRES"); named != "" && len(o.args) == 0 {
		config, err := pgx.ParseConfig("postgres://" + named)
		if err != nil {
			tb.Fatal("ANYLOCK_TEST_POSTGRES is not like user:password@host:port/database")
		}
		return &Server{
			scheme: "postgres", Addrs: []string{fmt.Sprintf("%s:%d", config.Host, config.Port)},
			Username: config.User, Password: config.Password,
		}
	}
	return obtain(tb, o.key("postgres"), spec{
		image:  postgresImage,
		scheme: "postgres",
		ports:  1,
		files:  []testcontainers.ContainerFile{script(postgresStart, postgresScript)},
		data:   "/anylock",
		command: func(ports []int) []string {
			return append([]string{
				postgresStart, "-p", strconv.Itoa(ports[0]), "-c", "listen_addresses=*", "-c", "unix_socket_directories=/tmp",
				"-c", "max_connections=300",
			}, o.args...)
		},
		set: func(server *Server, _ []int) {
			server.Username, server.Password = postgresUser, postgresPassword
		},
		ready: askPostgres,
	})
}

// standbyScript copies a primary the first time, and follows it.
const standbyScript = `#!/bin/sh
set -e
bin=$(echo /usr/lib/postgresql/*/bin)
data=/anylock/data
host=$1 port=$2
shift 2
if [ ! -e $data/PG_VERSION ]; then
	mkdir -p $data
	chown -R postgres /anylock
	chmod 700 $data
	PGPASSWORD=` + postgresPassword + ` setpriv --reuid=postgres --regid=postgres --clear-groups \
		"$bin/pg_basebackup" -h $host -p $port -U ` + postgresUser + ` -D $data -R -X stream -c fast --no-sync
fi
rm -f $data/postmaster.pid
exec setpriv --reuid=postgres --regid=postgres --clear-groups "$bin/postgres" -D $data "$@"
`

const standbyStart = "/start-standby.sh"

// PostgresStandby starts a streaming standby of a server that [Postgres] has started, and returns when it follows. Promote it
// by SELECT pg_promote(), mostly after the primary was paused or killed.
func PostgresStandby(tb testing.TB, primary *Server) *Server {
	tb.Helper()
	if !primary.CanFault() {
		tb.Skip("containers: a standby needs a primary that was started by this test")
	}
	host, err := primary.container.ContainerIP(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	_, port, _ := strings.Cut(primary.Addr(), ":")
	return obtain(tb, "", spec{
		image:  postgresImage,
		scheme: "postgres",
		ports:  1,
		files:  []testcontainers.ContainerFile{script(standbyStart, standbyScript)},
		command: func(ports []int) []string {
			return []string{
				standbyStart, host, port, "-p", strconv.Itoa(ports[0]), "-c", "listen_addresses=*", "-c", "unix_socket_directories=/tmp",
				"-c", "max_connections=300",
			}
		},
		set: func(server *Server, _ []int) {
			server.Username, server.Password = postgresUser, postgresPassword
		},
		ready: askPostgres,
	})
}

// PgBouncer starts a pooler in transaction mode in front of a server that [Postgres] has started. args are lines of its
// configuration, such as "default_pool_size = 2". Prepared statements are not kept, as in versions before 1.21, unless
// max_prepared_statements is set.
func PgBouncer(tb testing.TB, postgres *Server, args ...string) *Server {
	tb.Helper()
	if !postgres.CanFault() {
		tb.Skip("containers: PgBouncer needs a server that was started by this test")
	}
	host, err := postgres.container.ContainerIP(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	_, port, _ := strings.Cut(postgres.Addr(), ":")
	return obtain(tb, "", spec{
		image:  pgBouncerImage,
		scheme: "postgres",
		ports:  1,
		files: []testcontainers.ContainerFile{
			script(bouncerConfig, strings.Join(append([]string{
				"[databases]",
				"* = host=" + host + " port=" + port,
				"[pgbouncer]",
				"listen_addr = *", "unix_socket_dir =", "pool_mode = transaction", "max_prepared_statements = 0",
				"auth_type = scram-sha-256", "auth_file = " + bouncerUsers, "default_pool_size = 4", "max_client_conn = 300",
			}, args...), "\n")+"\n"),
			script(bouncerUsers, fmt.Sprintf("%q %q\n", postgres.Username, postgres.Password)),
			script(bouncerStart, "#!/bin/sh\necho \"listen_port = $1\" >>"+bouncerConfig+
				"\nexec setpriv --reuid=65534 --regid=65534 --clear-groups pgbouncer "+bouncerConfig+"\n"),
		},
		command: func(ports []int) []string { return []string{bouncerStart, strconv.Itoa(ports[0])} },
		set: func(server *Server, _ []int) {
			server.Username, server.Password = postgres.Username, postgres.Password
		},
		ready: askPostgres,
	})
}

func script(path, text string) testcontainers.ContainerFile {
	return testcontainers.ContainerFile{Reader: bytes.NewReader([]byte(text)), ContainerFilePath: path, FileMode: 0o755}
}

// askPostgres returns nil when the server answers a query.
func askPostgres(ctx context.Context, server *Server) error {
	conn, err := pgx.Connect(ctx, server.URL()+"/"+postgresDatabase+"?sslmode=disable")
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	return conn.Ping(ctx)
}
