package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestWatchWhileTheListenerLeaves: between the decision to close the connection and its end.
func TestWatchWhileTheListenerLeaves(t *testing.T) {
	connected := false
	l := newListener(func(context.Context) (*pgx.Conn, error) {
		connected = true
		return nil, errPooler // so that Watch tells to poll
	})
	defer l.close()
	l.alive = true
	if !l.finish() {
		t.Fatal("nobody watches")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if wake, err := l.watch(ctx, 1); wake != nil || err != nil || !connected {
		t.Errorf("Watch: %v, %v, connected: %v", wake != nil, err, connected)
	}
}
