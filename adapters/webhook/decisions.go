package webhook

import (
	"context"
	"log/slog"

	"github.com/txonce/txonce/internal/usercode"
)

// LogDecisions returns hooks that write one line for each event of a verified delivery, and one for each delivery that
// was refused: its source, its tenant, its ID, and what became of it. The lines have no payload, no header, and no text
// of an error, which Config.Logger gets. nil stands for slog.Default().
func LogDecisions(logger *slog.Logger) *Trace {
	logger = usercode.Logger(logger)
	event := func(decision string) func(context.Context, TraceEvent) {
		return func(ctx context.Context, e TraceEvent) {
			attrs := make([]slog.Attr, 0, 8)
			attrs = append(attrs, slog.String("source", e.Source), slog.String("decision", decision),
				slog.Duration("took", e.Took))
			if m := e.Message; m != nil {
				attrs = append(attrs, slog.String("tenant", m.Tenant), slog.String("id", m.ID), slog.String("topic", m.Topic))
			}
			if e.Refusal != "" {
				attrs = append(attrs, slog.String("reason", string(e.Refusal)), slog.Int("status", e.Status))
			}
			if e.Drop != "" {
				attrs = append(attrs, slog.String("reason", e.Drop))
			}
			logger.LogAttrs(ctx, slog.LevelInfo, "webhook: event", attrs...)
		}
	}
	return &Trace{
		Refused: event("refused"), Dropped: event("dropped"), Accepted: event("new"), Duplicate: event("duplicate"),
		Parked: event("parked"), Deferred: event("deferred"), Rejected: event("rejected"),
	}
}
