package redis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anylock/anylock"
)

// answers serves one client at a time, as a Redis that says the same to every script.
func answers(t *testing.T, reply string) *Backend {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				for {
					command, err := readCommand(in)
					if err != nil {
						return
					}
					say := "+OK\r\n"
					switch strings.ToLower(command[0]) {
					case "hello", "client":
						say = "-ERR unknown command\r\n"
					case "eval", "evalsha":
						say = reply
					}
					if _, err := io.WriteString(conn, say); err != nil {
						return
					}
				}
			})
		}
	})
	client := redis.NewClient(&redis.Options{Addr: l.Addr().String(), Protocol: 2, MaxRetries: -1, ContextTimeoutEnabled: true})
	b, err := New(client)
	if err != nil {
		t.Fatal(err)
	}
	b.probed.Store(true)
	t.Cleanup(func() {
		_ = b.Close()
		_ = client.Close()
		_ = l.Close()
		serving.Wait()
	})
	return b
}

func readCommand(in *bufio.Reader) ([]string, error) {
	readNumber := func() (int, error) {
		line, err := in.ReadString('\n')
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	n, err := readNumber()
	if err != nil {
		return nil, err
	}
	words := make([]string, n)
	for i := range words {
		size, err := readNumber()
		if err != nil {
			return nil, err
		}
		word := make([]byte, size+2)
		if _, err := io.ReadFull(in, word); err != nil {
			return nil, err
		}
		words[i] = string(word[:size])
	}
	return words, nil
}

func TestServerErrorsHaveAClass(t *testing.T) {
	const id = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for answer, class := range map[string]error{
		"READONLY You can't write against a read only replica.":                                        anylock.ErrUnavailable,
		"LOADING Redis is loading the dataset in memory":                                               anylock.ErrUnavailable,
		"MISCONF Redis is configured to save RDB snapshots, but it's unable to persist":                anylock.ErrUnavailable,
		"OOM command not allowed when used memory > 'maxmemory'.":                                      anylock.ErrUnavailable,
		"CLUSTERDOWN The cluster is down":                                                              anylock.ErrUnavailable,
		"MASTERDOWN Link with MASTER is down":                                                          anylock.ErrUnavailable,
		"TRYAGAIN Multiple keys request during rehashing of slot":                                      anylock.ErrUnavailable,
		"NOREPLICAS Not enough good replicas to write.":                                                anylock.ErrUnavailable,
		"BUSY Redis is busy running a script.":                                                         anylock.ErrUnavailable,
		"ERR max number of clients reached":                                                            anylock.ErrUnavailable,
		"ERR something new":                                                                            anylock.ErrUnavailable,
		"NOPERM this user has no permissions to run the 'evalsha' command":                             anylock.ErrInvalid,
		"NOAUTH Authentication required.":                                                              anylock.ErrInvalid,
		"WRONGPASS invalid username-password pair or user is disabled.":                                anylock.ErrInvalid,
		"WRONGTYPE Operation against a key holding the wrong kind of value":                            anylock.ErrInvalid,
		"CROSSSLOT Keys in request don't hash to the same slot":                                        anylock.ErrInvalid,
		"MOVED 3999 127.0.0.1:6381":                                                                    anylock.ErrInvalid,
		"ERR unknown command 'EVALSHA', with args beginning with: 'x' '2' '" + id + "' ":               anylock.ErrInvalid,
		"ERR ACL failure in script: No permissions to access a channel script: ab, on @user_script:9.": anylock.ErrInvalid,
		"ERR The user executing the script can't publish to the channel mentioned":                     anylock.ErrInvalid,
		"ERR Error running script (call to f_ab): @user_script:6: WRONGTYPE Operation":                 anylock.ErrInvalid,
		"ERR Error running script (call to f_ab): @user_script:6: -READONLY You can't ...":             anylock.ErrUnavailable,
	} {
		b := answers(t, "-"+answer+"\r\n")
		_, err := b.Acquire(t.Context(), request("x", id))
		check := func(op string, err error) {
			t.Helper()
			if !errors.Is(err, class) || errors.Is(err, anylock.ErrHeld) || errors.Is(err, anylock.ErrLost) {
				t.Errorf("%s: %q became %v; want %v", op, answer, err, class)
			}
			if err != nil && strings.Contains(err.Error(), id) {
				t.Errorf("%s: %v shows the ID", op, err)
			}
			if _, ok := errors.AsType[redis.Error](err); !ok {
				t.Errorf("%s: the driver's error is not reachable in %v", op, err)
			}
		}
		check("acquire", err)
		grants := []anylock.Grant{{Name: "x", ID: id, TTL: time.Second}}
		check("renew", b.Renew(t.Context(), grants)[0].Err)
		check("release", b.Release(t.Context(), grants)[0])
		two := slices.Repeat(grants, 2)
		check("renew of two", b.Renew(t.Context(), two)[1].Err)
		check("release of two", b.Release(t.Context(), two)[1])
	}
}

// Only the one right answer is success: nothing else may be taken for it.
func TestStrangeRepliesAreNoSuccess(t *testing.T) {
	for _, reply := range []string{
		"$-1\r\n", "*-1\r\n", ":1\r\n", "+OK\r\n", "$2\r\nOK\r\n", "*0\r\n", "*1\r\n$1\r\n1\r\n", "*1\r\n:7\r\n",
		"*2\r\n$1\r\n1\r\n$1\r\n5\r\n", "*1\r\n$-1\r\n",
	} {
		b := answers(t, reply)
		if g, err := b.Acquire(t.Context(), request("x", newID())); !errors.Is(err, anylock.ErrUnavailable) {
			t.Errorf("acquire: %q gave %+v, %v", reply, g, err)
		}
		grants := []anylock.Grant{{Name: "x", ID: newID(), TTL: time.Second}}
		if r := b.Renew(t.Context(), grants)[0]; !errors.Is(r.Err, anylock.ErrUnavailable) {
			t.Errorf("renew: %q gave %v", reply, r.Err)
		}
		if err := b.Release(t.Context(), grants)[0]; !errors.Is(err, anylock.ErrUnavailable) {
			t.Errorf("release: %q gave %v", reply, err)
		}
	}
	for _, reply := range []string{"*1\r\n:1\r\n", "*2\r\n:1\r\n$1\r\nx\r\n", "*2\r\n:1\r\n$1\r\n0\r\n", "*2\r\n:1\r\n:5\r\n"} {
		if g, err := answers(t, reply).Acquire(t.Context(), request("x", newID())); !errors.Is(err, anylock.ErrUnavailable) {
			t.Errorf("acquire: %q gave %+v, %v", reply, g, err)
		}
	}
}

// The deadline of a request is not its caller's, so nobody must take it for that.
func TestClassifyHidesContextErrors(t *testing.T) {
	err := classify(fmt.Errorf("read: %w", context.DeadlineExceeded), false)
	if !errors.Is(err, anylock.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

// A server that does not know a command repeats its arguments, and some are passwords.
func TestRedactedErrorsKeepNothing(t *testing.T) {
	err := classify(answered("ERR unknown command 'auth', with args beginning with: 'bob' 's3cret'"), false)
	wantClass(t, err, anylock.ErrInvalid)
	if _, ok := errors.AsType[redis.Error](err); !ok {
		t.Error("it is no error of the server any more")
	}
	var look func(error)
	look = func(err error) {
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%T says %q", err, err)
		}
		switch e := err.(type) { //nolint:errorlint // each link of the chain
		case interface{ Unwrap() error }:
			look(e.Unwrap())
		case interface{ Unwrap() []error }:
			for _, inner := range e.Unwrap() {
				look(inner)
			}
		}
	}
	look(err)
}

// answered is an error as go-redis makes it of a server's answer.
type answered string

func (e answered) Error() string { return string(e) }
func (answered) RedisError()     {}
