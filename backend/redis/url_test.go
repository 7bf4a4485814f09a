package redis

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anylock/anylock"
)

func TestURL(t *testing.T) {
	for url, check := range map[string]func(s settings) bool{
		"redis://h":                func(s settings) bool { return s.client.Addrs[0] == "h:6379" && s.config.prefix == "lock:" },
		"valkey://h:7000/3":        func(s settings) bool { return s.client.Addrs[0] == "h:7000" && s.client.DB == 3 },
		"redis://:@h":              func(s settings) bool { return s.client.Username == "" && s.client.Password == "" },
		"redis://default:@h":       func(s settings) bool { return s.client.Username == "" && s.client.Password == "" },
		"redis://h/":               func(s settings) bool { return s.client.DB == 0 },
		"redis://[::1]/2":          func(s settings) bool { return s.client.Addrs[0] == "[::1]:6379" },
		"redis://[::1]:7":          func(s settings) bool { return s.client.Addrs[0] == "[::1]:7" },
		"redis://:p%40%2F%3A@h":    func(s settings) bool { return s.client.Password == "p@/:" && s.client.Username == "" },
		"redis://u%3Ax:p+q@h":      func(s settings) bool { return s.client.Username == "u:x" && s.client.Password == "p+q" },
		"redis://h?prefix=":        func(s settings) bool { return s.config.prefix == "" },
		"redis://h?prefix=%7Bx%7D": func(s settings) bool { return s.config.prefix == "{x}" },
		"redis://a,b:2?cluster=true": func(s settings) bool {
			return slices.Equal(s.client.Addrs, []string{"a:6379", "b:2"}) && s.client.IsClusterMode
		},
		"redis://a?cluster=true": func(s settings) bool { return s.client.IsClusterMode },
		"redis://u:p@a,b/1?sentinel=m&sentineluser=x&sentinelpassword=y": func(s settings) bool {
			return s.client.MasterName == "m" && s.client.Addrs[1] == "b:26379" && s.client.SentinelUsername == "x" &&
				s.client.SentinelPassword == "y" && s.client.DB == 1 && s.client.Password == "p"
		},
		"redis://h?wait=1":                     func(s settings) bool { return s.config.replicas == 1 && s.config.waitTimeout == defaultWaitTimeout },
		"redis://h?wait=2&waittimeout=100ms":   func(s settings) bool { return s.config.waitTimeout == 100*time.Millisecond },
		"redis://h?retention=24h":              func(s settings) bool { return s.config.retention == 24*time.Hour },
		"rediss://h":                           func(s settings) bool { return s.client.TLSConfig != nil && s.client.TLSConfig.ServerName == "" },
		"valkeys://h?servername=redis.example": func(s settings) bool { return s.client.TLSConfig.ServerName == "redis.example" },
	} {
		s, err := parseURL(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
		} else if !check(s) {
			t.Errorf("%s gave %+v %+v", url, s.client.Addrs, s.config)
		}
	}
}

func TestWrongURLs(t *testing.T) {
	notPEM := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(notPEM, []byte("no"), 0o600); err != nil {
		t.Fatal(err)
	}
	const secret = "s3cret"
	for url, hint := range map[string]string{
		"redis://a,b":                        "cluster=true",
		"redis://":                           "host 1",
		"redis:///0":                         "host 1",
		"redis://:s3cret@":                   "host 1",
		"redis://a,":                         "host 2",
		"redis://h:0":                        "host 1",
		"redis://h:66666":                    "host 1",
		"redis://h:x":                        "host 1",
		"redis://h/x":                        "database",
		"redis://h/-1":                       "database",
		"redis://h/0/1":                      "database",
		"redis://s3cret@h":                   ":PASSWORD@",
		"redis://u:@h":                       ":PASSWORD@",
		"redis://:s3cret%zz@h":               "%25",
		"redis://:s3/s3cret@h":               "%2F",
		"redis://:s3cret#@h":                 "%23",
		"redis://:s3cret?@h":                 "%3F",
		"redis://h?cluster=true&sentinel=m":  "exclude",
		"redis://h?sentinel=":                "sentinel=",
		"redis://h?sentinelpassword=s3cret":  "sentinel=MASTERNAME",
		"redis://h/1?cluster=true":           "database 0",
		"redis://h?cluster=maybe":            "cluster",
		"redis://h?waittimeout=1s":           "wait=N",
		"redis://h?wait=-1":                  "negative",
		"redis://h?wait=1&waittimeout=1m":    "waittimeout",
		"redis://h?retention=1s":             "retention",
		"redis://h?prefix=%7B":               "hash tag",
		"redis://h?prefx=a":                  `"prefix"`,
		"redis://h?ca=/x":                    "rediss://",
		"rediss://h?ca=/does/not/exist":      "ca=",
		"rediss://h?ca=" + notPEM:            "PEM",
		"rediss://h?cert=" + notPEM:          "key=",
		"rediss://h?key=/x&cert=/y":          "cert=",
		"http://h":                           "redis://",
		"redis://:s3cret@h:port/0?cluster=x": "cluster",
	} {
		_, err := Open(t.Context(), url)
		if !errors.Is(err, anylock.ErrInvalid) || !strings.Contains(err.Error(), hint) {
			t.Errorf("%s: %v; want ErrInvalid with %q", url, err, hint)
		}
		if err != nil && strings.Contains(err.Error(), secret) && !strings.Contains(url, "?@") {
			t.Errorf("%s: the error shows the password: %v", url, err)
		}
	}
}

func TestOpenOfNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, addr := range map[string]string{"closed port": "127.0.0.1:1", "silent server": l.Addr().String()} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		start := time.Now()
		_, err := Open(ctx, "redis://:s3cret@"+addr)
		cancel()
		if !errors.Is(err, anylock.ErrUnavailable) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want ErrUnavailable", name, err)
		}
		if took := time.Since(start); took > 1300*time.Millisecond {
			t.Errorf("%s: took %v", name, took)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	ring := redis.NewRing(&redis.RingOptions{})
	defer ring.Close()
	for name, try := range map[string]func() (*Backend, error){
		"nil":        func() (*Backend, error) { return New(nil) },
		"typed nil":  func() (*Backend, error) { return New((*redis.Client)(nil)) },
		"ring":       func() (*Backend, error) { return New(ring) },
		"nil option": func() (*Backend, error) { return New(client, nil) },
		"prefix":     func() (*Backend, error) { return New(client, WithPrefix("{")) },
		"replicas":   func() (*Backend, error) { return New(client, WithReplicas(-1, 0)) },
		"timeout":    func() (*Backend, error) { return New(client, WithReplicas(1, time.Hour)) },
		"retention":  func() (*Backend, error) { return New(client, WithRetention(0)) },
	} {
		if b, err := try(); !errors.Is(err, anylock.ErrInvalid) || b != nil {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
}

// No error of Open contains a part of a password, wherever it stands and however it was not escaped.
func TestNoSecretInErrorsOfOpen(t *testing.T) {
	const mark = "S3CR3T"
	for _, secret := range []string{mark, mark + "@" + mark, mark + "&" + mark, mark + "&" + mark + "=1", mark + "?" + mark, mark + "/" + mark, mark + "#" + mark,
		mark + ":" + mark, mark + "%zz" + mark, mark + " " + mark, mark + "&ttl=" + mark, mark + "," + mark, "[" + mark} {
		for _, url := range []string{
			"redis://user:" + secret + "@127.0.0.1:1/0", "redis://:" + secret + "@127.0.0.1:1", "rediss://:" + secret + "@127.0.0.1:1",
			"redis://user:" + secret + "@127.0.0.1:1,127.0.0.1:2?cluster=true", "redis://127.0.0.1:1?sentinel=m&sentinelpassword=" + secret,
			"redis://127.0.0.1:1?sentinelpassword=" + secret + "&sentinel=m", "redis://:" + secret + "@nowhere.invalid",
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			l, err := anylock.Open(ctx, url)
			cancel()
			if err == nil {
				_ = l.Close(t.Context())
				t.Errorf("%q was opened", url)
			} else if strings.Contains(err.Error(), mark) {
				t.Errorf("%q: %v", url, err)
			}
		}
	}
}

// A password that the sentinels ask for is not that of the servers.
func TestAdviceForSentinels(t *testing.T) {
	for answer, advice := range map[string]string{
		"NOAUTH Authentication required.":                                                "sentinelpassword=",
		"WRONGPASS invalid username-password pair":                                       "sentinelpassword=",
		"NOPERM User has no permissions":                                                 "sentineluser=",
		"ERR No such master with that name":                                              "sentinel=",
		"ERR AUTH <password> called without any password configured, no password is set": "sentinelpassword=",
	} {
		err := classifySentinel(answered(answer))
		if !errors.Is(err, anylock.ErrInvalid) || !strings.Contains(err.Error(), advice) || strings.Contains(err.Error(), ":PASSWORD@") {
			t.Errorf("%s: %v", answer, err)
		}
	}
}
