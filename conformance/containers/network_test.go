package containers_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anylock/anylock/conformance/containers"
)

// onNetwork is a server, a client with a warm connection to it by way of a network, and another client that sees what
// really happened.
type onNetwork struct {
	network  *containers.Network
	client   *redis.Client
	observer *redis.Client
	key      string
}

func newOnNetwork(t *testing.T) onNetwork {
	t.Helper()
	server := containers.Redis(t, containers.Shared())
	network := containers.NewNetwork(t)
	n := onNetwork{
		network:  network,
		client:   newClient(t, server, network.DialContext),
		observer: newClient(t, server, nil),
		key:      t.Name(),
	}
	succeed(t, "DEL", n.observer.Del(patience(t), n.key)) // of an earlier run
	succeed(t, "PING to warm up", n.client.Ping(patience(t)))
	return n
}

func (n onNetwork) value(t *testing.T) string {
	t.Helper()
	value, err := n.observer.Get(patience(t), n.key).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	return value
}

func TestCutLosesRequestsAndNobodyNotices(t *testing.T) {
	ctx := patience(t)
	n := newOnNetwork(t)
	connected := clients(t, n.observer)

	n.network.Cut()
	cmdCtx, cancel := context.WithTimeout(ctx, short)
	defer cancel()
	if err := n.client.Set(cmdCtx, n.key, "lost", 0).Err(); !isTimeout(err) {
		t.Fatalf("SET on a cut network: %v, want a timeout", err)
	}
	// The driver has given its connection up; the server must still believe in it.
	if now := clients(t, n.observer); now != connected {
		t.Errorf("the server has %d clients, had %d: it noticed", now, connected)
	}
	pingHangs(t, n.client) // on a new connection

	n.network.Heal()
	succeed(t, "PING after Heal", n.client.Ping(ctx))
	if got := n.value(t); got != "" {
		t.Errorf("the lost SET arrived: %q", got)
	}
}

func TestCutLosesReplies(t *testing.T) {
	ctx := patience(t)
	n := newOnNetwork(t)
	conn, err := n.network.DialContext(ctx, "tcp", n.client.Options().Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "BLPOP "+n.key+" 0\r\n"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the blocked client", func() bool {
		info, err := n.observer.Info(ctx, "clients").Result()
		return err == nil && strings.Contains(info, "blocked_clients:1")
	})

	n.network.Cut()
	succeed(t, "LPUSH", n.observer.LPush(ctx, n.key, "value")) // is answered to the blocked client
	if err := conn.SetReadDeadline(time.Now().Add(short)); err != nil {
		t.Fatal(err)
	}
	if count, err := conn.Read(make([]byte, 100)); count != 0 || !isTimeout(err) {
		t.Fatalf("read %d bytes, %v, from a cut network", count, err)
	}

	n.network.Heal()
	if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if count, err := conn.Read(make([]byte, 100)); count != 0 || isTimeout(err) {
		t.Fatalf("read %d bytes, %v: a connection with a hole in it lives on", count, err)
	}
}

func TestIdleConnectionOutlivesCut(t *testing.T) {
	n := newOnNetwork(t)
	n.network.Cut()
	n.network.Heal()
	before := n.network.RoundTrips()
	succeed(t, "PING", n.client.Ping(patience(t)))
	if trips := n.network.RoundTrips() - before; trips != 1 {
		t.Errorf("%d round trips: not on the old connection", trips)
	}
}

func TestDialWaitsForHeal(t *testing.T) {
	n := newOnNetwork(t)
	n.network.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	if _, err := n.network.DialContext(ctx, "tcp", n.client.Options().Addr); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("dial on a cut network: %v", err)
	}

	dialled := make(chan error)
	go func() {
		conn, err := n.network.DialContext(t.Context(), "tcp", n.client.Options().Addr)
		if err == nil {
			err = conn.Close()
		}
		dialled <- err
	}()
	n.network.Heal()
	if err := <-dialled; err != nil {
		t.Error(err)
	}
}

func TestHeldRequestArrivesAfterItsSenderGaveUp(t *testing.T) {
	ctx := patience(t)
	n := newOnNetwork(t)
	n.network.Hold()
	cmdCtx, cancel := context.WithTimeout(ctx, short)
	defer cancel()
	if err := n.client.Set(cmdCtx, n.key, "late", 0).Err(); !isTimeout(err) {
		t.Fatalf("SET on a held network: %v, want a timeout", err)
	}
	if got := n.value(t); got != "" {
		t.Fatalf("the held SET arrived at once: %q", got)
	}
	n.network.Heal()
	waitFor(t, "the held SET", func() bool { return n.value(t) == "late" })
}

func TestStalledRequestIsOvertaken(t *testing.T) {
	ctx := patience(t)
	n := newOnNetwork(t)
	succeed(t, "PING", n.client.Ping(ctx))
	n.network.Stall()
	cmdCtx, cancel := context.WithTimeout(ctx, short)
	defer cancel()
	if err := n.client.Set(cmdCtx, n.key, "late", 0).Err(); !isTimeout(err) {
		t.Fatalf("SET on a stalled connection: %v, want a timeout", err)
	}
	succeed(t, "SET on a new connection", n.client.Set(ctx, n.key, "second", 0))
	if got := n.value(t); got != "second" {
		t.Fatalf("the stalled SET arrived at once: %q", got)
	}
	n.network.Heal()
	waitFor(t, "the stalled SET", func() bool { return n.value(t) == "late" })
}

func TestDropReplyCarriesTheRequestOut(t *testing.T) {
	ctx := patience(t)
	n := newOnNetwork(t)
	n.network.DropReply(n.key)
	succeed(t, "PING, which does not contain the key", n.client.Ping(ctx))

	err := n.client.Incr(ctx, n.key).Err()
	if err == nil || isTimeout(err) {
		t.Fatalf("INCR: %v, want a closed connection", err)
	}
	if got := n.value(t); got != "1" {
		t.Errorf("the server has %q, want 1: carried out once", got)
	}
	succeed(t, "INCR, once more", n.client.Incr(ctx, n.key))
	if got := n.value(t); got != "2" {
		t.Errorf("the server has %q, want 2", got)
	}
}

func TestSlowDelaysRepliesOnly(t *testing.T) {
	ctx := patience(t)
	n := newOnNetwork(t)
	n.network.Slow(short)

	start := time.Now()
	done := make(chan error, 1)
	go func() { done <- n.client.Set(ctx, n.key, "1", 0).Err() }()
	waitFor(t, "the request", func() bool { return n.value(t) == "1" })
	select {
	case err := <-done:
		t.Fatalf("answered after %v, %v", time.Since(start), err)
	default:
	}
	if err := <-done; err != nil || time.Since(start) < short {
		t.Errorf("answered after %v, %v, want at least %v", time.Since(start), err, short)
	}

	n.network.Slow(time.Hour)
	go func() { done <- n.client.Ping(ctx).Err() }()
	n.network.Heal()
	if err := <-done; err != nil {
		t.Errorf("PING after Heal: %v", err)
	}
}

func TestDisconnectClosesOnce(t *testing.T) {
	ctx := patience(t)
	n := newOnNetwork(t)
	conn, err := n.network.DialContext(ctx, "tcp", n.client.Options().Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	n.network.Disconnect()
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("still connected")
	}
	waitFor(t, "a new connection", func() bool { return n.client.Ping(ctx).Err() == nil })
}

func TestFaultsHitOneClient(t *testing.T) {
	n := newOnNetwork(t)
	n.network.Cut()
	succeed(t, "PING of another client", n.observer.Ping(patience(t)))
	other := containers.NewNetwork(t)
	server := &containers.Server{Addrs: []string{n.client.Options().Addr}}
	succeed(t, "PING on another network", newClient(t, server, other.DialContext).Ping(patience(t)))
}

func TestAddrIsForClientsWithoutADialer(t *testing.T) {
	n := newOnNetwork(t)
	addr := n.network.Addr(t, n.observer.Options().Addr)
	client := newClient(t, &containers.Server{Addrs: []string{addr}}, nil)
	succeed(t, "PING", client.Ping(patience(t)))
	n.network.Cut()
	pingHangs(t, client)
}

func TestRoundTripsCountsAnswersNotCommands(t *testing.T) {
	ctx := patience(t)
	n := newOnNetwork(t)
	before := n.network.RoundTrips()
	for range 3 {
		succeed(t, "PING", n.client.Ping(ctx))
	}
	if trips := n.network.RoundTrips() - before; trips != 3 {
		t.Errorf("3 PINGs took %d round trips", trips)
	}

	pipeline := func() {
		_, err := n.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for range 100 {
				pipe.Ping(ctx)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	pipeline() // the driver has other connections for pipelines
	before = n.network.RoundTrips()
	pipeline()
	if trips := n.network.RoundTrips() - before; trips != 1 {
		t.Errorf("a pipeline of 100 took %d round trips", trips)
	}
}

func TestManyConnectionsShareOneNetwork(t *testing.T) {
	ctx := patience(t)
	n := newOnNetwork(t)
	client := redis.NewClient(&redis.Options{Addr: n.client.Options().Addr, Dialer: n.network.DialContext})
	defer client.Close()
	value := strings.Repeat("x", 100_000)
	errs := make(chan error)
	const clients = 20
	for range clients {
		go func() {
			got, err := client.Echo(ctx, value).Result()
			if err == nil && got != value {
				err = errors.New("the data was changed on its way")
			}
			errs <- err
		}()
	}
	for range clients {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func isTimeout(err error) bool {
	var netErr net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &netErr) && netErr.Timeout()
}

// clients counts the connections that the server believes to have.
func clients(t *testing.T, observer *redis.Client) int {
	t.Helper()
	list, err := observer.ClientList(patience(t)).Result()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(list, "\n")
}

func waitFor(t *testing.T, what string, happened func() bool) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for !happened() {
		if time.Now().After(deadline) {
			t.Fatalf("still no %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
