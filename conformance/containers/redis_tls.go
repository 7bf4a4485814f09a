package containers

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/testcontainers/testcontainers-go"
)

// User is who may connect to [RedisTLS], and what for.
type User struct {
	Name, Password string

	// Rules are those of Redis' ACL SETUSER, such as "~app:*", "&*", "+@all", "-@dangerous".
	Rules []string
}

// RedisTLS starts one node of Redis 8 that speaks TLS only and knows one user; the default user is off. The server's
// TLS, Username and Password fields are what a client needs.
func RedisTLS(tb testing.TB, user User, opts ...Option) *Server {
	tb.Helper()
	certificate, err := newCertificate()
	if err != nil {
		tb.Fatal(err)
	}

	o := collect(opts)
	acl := append([]string{"--user", user.Name, "on", ">" + user.Password}, user.Rules...)
	return obtain(tb, o.key("redis-tls "+strings.Join(acl, " ")), spec{
		image:  redisImage,
		scheme: "rediss",
		ports:  1,
		files: []testcontainers.ContainerFile{
			{Reader: bytes.NewReader(certificate.certPEM), ContainerFilePath: "/tls.crt", FileMode: 0o644},
			{Reader: bytes.NewReader(certificate.keyPEM), ContainerFilePath: "/tls.key", FileMode: 0o644},
		},
		command: func(ports []int) []string {
			args := redisArgs("--port", "0", "--tls-port", strconv.Itoa(ports[0]),
				"--tls-cert-file", "/tls.crt", "--tls-key-file", "/tls.key", "--tls-ca-cert-file", "/tls.crt",
				"--tls-auth-clients", "no", "--user", "default", "off")
			return slices.Concat([]string{"redis-server"}, args, acl, o.args)
		},
		set: func(server *Server, _ []int) {
			server.Username, server.Password = user.Name, user.Password
			server.TLS = &tls.Config{RootCAs: certificate.pool, ServerName: certificateName, MinVersion: tls.VersionTLS12}
		},
		ready: func(ctx context.Context, server *Server) error {
			_, err := askTLS(ctx, server.Addr(), server.TLS, []string{"AUTH", user.Name, user.Password}, []string{"PING"})
			if refused := replyError(""); errors.As(err, &refused) && strings.HasPrefix(string(refused), "NOPERM") {
				return nil // it answers; that this user may not ping is the caller's choice
			}
			return err
		},
	})
}
