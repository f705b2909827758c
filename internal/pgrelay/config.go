package pgrelay

import (
	"context"
	"time"

	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/wakes"
)

// Config says how a session works with its store. All fields are required.
type Config struct {
	Conns    Conns
	SQL      *dialect.PostgresOutbox
	KeepSent time.Duration // how long sent messages are kept; 0: they are not

	Name string        // see driver.SessionOptions
	TTL  time.Duration // of the hold

	Wakes     *wakes.Subscription // notifies of commits
	Announced func() bool         // reports whether Wakes gets the commits of all processes
	Wake      func(ctx context.Context)
	// HoldsAll is called with the end of the hold when the session holds all shards, and with the zero time when it
	// does not any more.
	HoldsAll func(until time.Time)
	// Older is called when the database was set back to an older state. args say how that was noticed, as those of
	// slog.
	Older func(ctx context.Context, args ...any)
}
