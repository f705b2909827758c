package deliver_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/internal/deliver"
	"github.com/txonce/txonce/observe"
)

// A Subscriber whose Run ends during a pause and is run again is paused once and not for ever: a gauge counts the
// calls.
func TestPauseEndsWithRun(t *testing.T) {
	paused, order := 0, ""
	trace := &driver.SourceTrace{
		Paused:       func(context.Context, observe.Pause) { paused++ },
		Resumed:      func(context.Context, observe.Pause) { paused--; order += "resumed " },
		Unsubscribed: func(context.Context, driver.SourceEvent) { order += "unsubscribed " },
	}
	for range 2 {
		o := deliver.NewObserver("kafka", "kafka", "billing", "the cluster", trace, slog.New(slog.DiscardHandler))
		o.Broker.Failed(t.Context(), true, errors.New("connection refused"))
		if paused != 1 {
			t.Errorf("during a pause: %d pauses", paused)
		}
		o.Unsubscribed(t.Context(), nil)
		if paused != 0 {
			t.Errorf("after Run: %d pauses", paused)
		}
	}
	if order != "resumed unsubscribed resumed unsubscribed " {
		t.Errorf("hooks: %s", order)
	}
}
