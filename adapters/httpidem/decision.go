package httpidem

import (
	"context"
	"log/slog"
	"time"

	"github.com/txonce/txonce/internal/usercode"
)

// Decision is what a Guard did with a request.
type Decision string

// The decisions. With any other than First, Recorded and Unkeyed, the request itself has changed nothing.
const (
	First      Decision = "new"        // the handler ran, and its work and response are committed under the key
	Recorded   Decision = "recorded"   // the handler ran and answered with 400 or more; repeats get this response
	Undone     Decision = "undone"     // the handler ran and its work is rolled back; a repeat runs again
	Unkeyed    Decision = "unkeyed"    // the request has no key: its work is committed, and a repeat runs again
	Replayed   Decision = "replayed"   // the request was completed before; the client got the stored response
	Conflict   Decision = "conflict"   // 409: another request with the key was running until Config.Wait had passed
	Mismatched Decision = "mismatched" // 422: the key was used for another request
	Refused    Decision = "refused"    // any other Reason
	Panicked   Decision = "panicked"   // the handler panicked, and its work is rolled back; a repeat runs again
)

// Decisions returns all decisions.
func Decisions() []Decision {
	return []Decision{First, Recorded, Undone, Unkeyed, Replayed, Conflict, Mismatched, Refused, Panicked}
}

func refusedBecause(reason Reason) Decision {
	if decision, own := map[Reason]Decision{InFlight: Conflict, Mismatch: Mismatched}[reason]; own {
		return decision
	}
	return Refused
}

// LogDecisions returns hooks that write one line for each request: which Guard and route, what it decided, the
// request's Event.Key, and what the client got. The lines have no key of a client, no principal, no target and no body.
// nil stands for slog.Default().
func LogDecisions(logger *slog.Logger) *Trace {
	logger = usercode.Logger(logger)
	line := func(ctx context.Context, e Event) {
		attrs := make([]slog.Attr, 0, 12)
		attrs = append(attrs, slog.String("guard", e.Guard), slog.String("method", e.Request.Method),
			slog.String("pattern", e.Request.Pattern), slog.String("decision", string(e.Decision)),
			slog.String("key", e.Key), slog.Int("status", e.Status), slog.Duration("took", e.Took))
		if e.Reason != "" {
			attrs = append(attrs, slog.String("reason", string(e.Reason)))
		}
		if e.Waited > 0 {
			attrs = append(attrs, slog.Duration("waited", e.Waited))
		}
		if e.Decision == Replayed {
			attrs = append(attrs, slog.Duration("age", e.Age.Round(time.Millisecond)))
		}
		if e.InDoubt {
			attrs = append(attrs, slog.Bool("in_doubt", true))
		}
		logger.LogAttrs(ctx, slog.LevelInfo, "httpidem: request", attrs...)
	}
	return &Trace{Committed: line, Recorded: line, Unstored: line, Replayed: line, Refused: line, Panicked: line}
}
