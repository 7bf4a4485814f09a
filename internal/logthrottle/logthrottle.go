// Package logthrottle keeps a flood of equal trouble out of the log.
package logthrottle

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// interval is how long after a line the next ones of its kind are shown at Debug only.
const interval = 3 * time.Second

// Kind is one kind of trouble. It is logged at Warn, a line every 3 s at most however often it happens, and the rest at
// Debug. The zero value is ready.
type Kind struct {
	mu    sync.Mutex
	next  time.Time
	muted int
}

// Warn logs one instance, in a goroutine of its own: a handler may be slow, and what the trouble is about must not wait for
// it. The line says how many were not shown since the last.
func (k *Kind) Warn(logger *slog.Logger, msg string, args ...any) {
	k.mu.Lock()
	level := slog.LevelDebug
	if now := time.Now(); !now.Before(k.next) {
		level = slog.LevelWarn
		k.next = now.Add(interval)
		if k.muted > 0 {
			args = append(args, "not_shown_since_last", k.muted)
		}
		k.muted = 0
	} else {
		k.muted++
	}
	k.mu.Unlock()
	if logger.Enabled(context.Background(), level) {
		go logger.Log(context.Background(), level, msg, args...)
	}
}
