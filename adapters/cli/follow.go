package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/observe"
)

// silentFor is how long a replay may make no progress before the operator gets a hint.
const silentFor = 30 * time.Second

// follow shows the progress of an action until it ends. rest says what becomes of it if ctx ends first.
func (a *app) follow(ctx context.Context, db *Database, out *printer, action ops.Action, rest string) error {
	p := newProgress(out, "replayed", action.Matched)
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	waiting, moved, silent := action.Waiting, time.Now(), silentFor
	if action.Rate > 0 {
		silent = max(silent, time.Duration(3/action.Rate*float64(time.Second)))
	}
	for action.Ended.IsZero() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			p.end()
			out.notef("%s; follow it with: txonce actions show %s --wait\n", rest, action.ID)
			return ctx.Err()
		}
		limited, cancel := a.limit(ctx)
		found, err := db.Store.Operator().Actions(limited, ops.ActionFilter{ID: action.ID})
		cancel()
		switch {
		case err != nil && ctx.Err() == nil:
			p.end()
			return fmt.Errorf("the request is made, and %s (action %s): %w", rest, action.ID, err)
		case err == nil && len(found) == 0:
			p.end()
			return fmt.Errorf("%w: %s", ops.ErrNoAction, action.ID)
		case err == nil:
			action = found[0]
			p.show(action.Matched-action.Waiting, action.Results[observe.Parked])
			if action.Waiting != waiting {
				waiting, moved = action.Waiting, time.Now()
			}
			if waiting > 0 && time.Since(moved) > silent {
				p.end()
				out.notef("no letter was replayed for %s: do workers of %s run, and do they call RunReplays?\n",
					ago(silent), Harmless(action.Consumer))
				moved = moved.Add(time.Hour) // once is enough for long
			}
		}
	}
	p.end()
	if err := out.object(actionJSON(out, action), func() { out.printf("%s\n", actionText(action)) }); err != nil {
		return err
	}
	early := ""
	if action.Note != replayDone {
		early = fmt.Sprintf("the replay ended early (%s), and the letters that waited are dead letters as before",
			Harmless(action.Note))
	}
	switch n := action.Results[observe.Parked]; {
	case n > 0 && early != "":
		return finding("%s failed, and %s: txonce actions show %s says why", count(n, "letter"), early, action.ID)
	case n > 0:
		return finding("%s failed: txonce actions show %s says why", count(n, "letter"), action.ID)
	case early != "":
		return finding("%s", early)
	}
	return nil
}

// replayDone is the note of a replay whose letters were all replayed, see package internal/operator.
const replayDone = "done"

func actionText(a ops.Action) string {
	parts := []string{count(a.Matched, "letter")}
	for _, r := range []struct {
		outcome observe.Outcome
		text    string
	}{
		{observe.Processed, "processed"},
		{observe.Duplicate, "gone before: processed or discarded"},
		{observe.Parked, "failed"},
		{observe.Rejected, "discarded"},
		{observe.Held, "not tried"},
	} {
		if n := a.Results[r.outcome]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, r.text))
		}
	}
	if a.Waiting > 0 {
		parts = append(parts, fmt.Sprintf("%d waiting", a.Waiting))
	}
	return strings.Join(parts, ", ")
}
