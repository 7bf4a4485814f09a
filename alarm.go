package anylock

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// alarms log what an operator should see.
type alarms struct {
	logger            *slog.Logger
	renewFailed, lost alarm
}

// alarm logs one kind of trouble at Warn, a line every few seconds at most however many leases have it, and the rest at
// Debug.
type alarm struct {
	mu    sync.Mutex
	next  time.Time
	muted int
}

const alarmInterval = 3 * time.Second

func (a *alarm) warn(logger *slog.Logger, msg string, args ...any) {
	a.mu.Lock()
	level := slog.LevelDebug
	if now := time.Now(); !now.Before(a.next) {
		level = slog.LevelWarn
		a.next = now.Add(alarmInterval)
		if a.muted > 0 {
			args = append(args, "not_shown_since_last", a.muted)
		}
		a.muted = 0
	} else {
		a.muted++
	}
	a.mu.Unlock()
	logger.Log(context.Background(), level, msg, args...)
}
