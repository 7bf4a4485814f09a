package redis

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/anylock/anylock"
)

// settings is what a URL says. No error of this file repeats a part of the URL other than a parameter's name: a password
// with a special letter in it may be found in any part.
type settings struct {
	client redis.UniversalOptions
	config config
}

func parseURL(raw string) (settings, error) {
	s := settings{config: defaults()}
	base, p, err := anylock.SplitURL(raw)
	if err != nil {
		return s, err
	}
	scheme, rest, found := strings.Cut(base, "://")
	secure := scheme == "rediss" || scheme == "valkeys"
	if !found || !secure && scheme != "redis" && scheme != "valkey" {
		return s, anylock.Invalidf("the URL must begin with redis://, rediss://, valkey:// or valkeys://")
	}

	s.config.prefix = p.String("prefix", s.config.prefix)
	s.config.replicas = p.Int("wait", 0)
	s.config.waitTimeout = p.Duration("waittimeout", s.config.waitTimeout)
	s.config.retention = p.Duration("retention", s.config.retention)
	s.client.IsClusterMode = p.Bool("cluster", false)
	sentinel := p.Has("sentinel")
	s.client.MasterName = p.String("sentinel", "")
	s.client.SentinelUsername = p.String("sentineluser", "")
	s.client.SentinelPassword = p.String("sentinelpassword", "")
	t := tlsFiles{ca: p.String("ca", ""), cert: p.String("cert", ""), key: p.String("key", ""), server: p.String("servername", "")}
	hasWaitTimeout := p.Has("waittimeout")
	if err := p.Err(); err != nil {
		return s, err
	}

	authority, path, _ := strings.Cut(rest, "/")
	if strings.Contains(path, "@") {
		return s, anylock.Invalidf("the URL has an @ after the first /; write %%2F for a / in a password")
	}
	if err := s.readUser(&authority); err != nil {
		return s, err
	}
	port := "6379"
	if sentinel {
		port = "26379"
	}
	if err := s.readHosts(authority, port); err != nil {
		return s, err
	}
	if path != "" {
		s.client.DB, err = strconv.Atoi(path)
		if err != nil || s.client.DB < 0 {
			return s, anylock.Invalidf("what follows the hosts in the URL must be the number of a database, such as /0")
		}
	}
	cluster := s.client.IsClusterMode
	switch {
	case sentinel && cluster:
		return s, anylock.Invalidf("cluster= and sentinel= exclude each other")
	case sentinel && s.client.MasterName == "":
		return s, anylock.Invalidf("sentinel= must be the name of the master that the sentinels watch")
	case !sentinel && (s.client.SentinelUsername != "" || s.client.SentinelPassword != ""):
		return s, anylock.Invalidf("sentineluser= and sentinelpassword= need sentinel=MASTERNAME")
	case len(s.client.Addrs) > 1 && !cluster && !sentinel:
		return s, anylock.Invalidf("the URL has %d hosts: write cluster=true if they are nodes of a Redis Cluster, or "+
			"sentinel=MASTERNAME if they are sentinels; independent servers are the backend redlock", len(s.client.Addrs))
	case cluster && s.client.DB != 0:
		return s, anylock.Invalidf("a cluster has database 0 only")
	case hasWaitTimeout && s.config.replicas == 0:
		return s, anylock.Invalidf("waittimeout= needs wait=N, the number of replicas")
	case !secure && t != tlsFiles{}:
		return s, anylock.Invalidf("ca=, cert=, key= and servername= need rediss:// or valkeys://")
	}
	if err := s.config.check(); err != nil {
		return s, err
	}
	if secure {
		s.client.TLSConfig, err = t.read()
	}
	return s, err
}

// readUser takes USER:PASSWORD@ off the front.
func (s *settings) readUser(authority *string) error {
	i := strings.LastIndexByte(*authority, '@')
	if i < 0 {
		return nil
	}
	name, password, found := strings.Cut((*authority)[:i], ":")
	*authority = (*authority)[i+1:]
	if found && password == "" && (name == "" || name == "default") { // what is made of a variable that is not set
		return nil
	}
	if !found || password == "" {
		return anylock.Invalidf("the URL has a user without a password; write USER:PASSWORD@, or :PASSWORD@ without a user")
	}
	var err error
	if s.client.Username, err = url.PathUnescape(name); err == nil {
		s.client.Password, err = url.PathUnescape(password)
	}
	if err != nil {
		return anylock.Invalidf("the user or the password in the URL has a %% that does not begin a %%XX; write %%25 for it")
	}
	return nil
}

func (s *settings) readHosts(authority, defaultPort string) error {
	for i, part := range strings.Split(authority, ",") {
		wrong := anylock.Invalidf("host %d of the URL must be HOST, HOST:PORT, [IPV6] or [IPV6]:PORT, with a port from 1 to 65535; "+
			"special letters in a password are written %%XX", i+1)
		host, port, err := net.SplitHostPort(part)
		if err != nil { // perhaps only the port is missing
			if host, port, err = net.SplitHostPort(part + ":" + defaultPort); err != nil {
				return wrong
			}
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" || strings.ContainsAny(host, "@/?[] ") {
			return wrong
		}
		s.client.Addrs = append(s.client.Addrs, net.JoinHostPort(host, port))
	}
	return nil
}

// tlsFiles are the TLS parameters.
type tlsFiles struct{ ca, cert, key, server string }

func (t tlsFiles) read() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.server}
	if t.ca != "" {
		pem, err := os.ReadFile(t.ca)
		if err != nil {
			return nil, anylock.Invalid(err, "the file of ca= cannot be read")
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, anylock.Invalidf("the file of ca= has no certificate in PEM form")
		}
	}
	if (t.cert == "") != (t.key == "") {
		return nil, anylock.Invalidf("cert= and key= need each other")
	}
	if t.cert != "" {
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			return nil, anylock.Invalid(err, "the files of cert= and key= cannot be used")
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
