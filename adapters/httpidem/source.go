package httpidem

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/httpkey"
)

// recordWithin limits how long a first request's answer waits for recordSource.
const recordWithin = time.Second

// recordSource records once, after a first request was answered from the database, that the keys of this name are HMACs
// of HTTP requests. Without it an operator who asks for a client's key would read that the request was not processed.
// It also makes a Consumer of the same name in another service fail at its start.
func (g *Guard[TTx]) recordSource(ctx context.Context) {
	registrar, ok := g.cfg.Store.(driver.Registrar)
	now, at := time.Now().UnixNano(), g.recordAt.Load()
	if !ok || now < at || !g.recordAt.CompareAndSwap(at, now+int64(time.Minute)) {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), recordWithin, errUnanswered)
	defer cancel()
	err := registrar.RegisterSources(ctx, g.cfg.Name, []string{httpkey.Source})
	switch {
	case err == nil:
		g.recordAt.Store(math.MaxInt64)
	case errors.Is(err, dedup.ErrNameTaken): // the same again with each request
		g.cfg.Logger.ErrorContext(ctx, "httpidem: another service has the name of this Guard, and their keys may be taken for each other's: give one of them another name",
			"guard", g.cfg.Name, "error", err)
		g.recordAt.Store(math.MaxInt64)
	default: // a request tries again after a minute
		g.cfg.Logger.WarnContext(ctx, "httpidem: the source of the keys is not recorded yet: txonce explain does not know that they are HTTP requests",
			"guard", g.cfg.Name, "error", err)
	}
}
