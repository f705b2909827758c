package stripehook

import (
	"context"
	"encoding/json"
	"fmt"
)

// state is what the checkpoint keeps.
type state struct {
	Version int    `json:"version"`
	Scope   string `json:"scope"` // whose events: the tenant of events that name no account
	// all listed events that were created before this second, or in it, are handled; later passes begin Overlap before
	// it
	Seen int64 `json:"seen"`
}

const stateVersion = 1

// scope names the account and mode that the Backfill reads.
func (b *Backfill[TTx]) scope() string {
	return b.keys.tenant(Event{Livemode: b.cfg.Client.cfg.Mode == Live})
}

// load returns how far the passes before have come, or 0. A state that cannot be read, for example because a newer
// version wrote it, is an error and not a new start: a person must know that events may be missing.
func (b *Backfill[TTx]) load(ctx context.Context) (seen int64, err error) {
	text, err := b.cfg.Checkpoint.Load(ctx)
	if err != nil || text == nil {
		return 0, err
	}
	var s state
	if err := json.Unmarshal(text, &s); err != nil || s.Version != stateVersion {
		return 0, fmt.Errorf("the checkpoint %.100q was not written by this version; use a checkpoint with a new name", text)
	}
	if s.Scope != b.scope() {
		return 0, fmt.Errorf("the checkpoint belongs to the backfill of %q, and this one is of %q: each needs a checkpoint with a name of its own",
			s.Scope, b.scope())
	}
	return s.Seen, nil
}

func (b *Backfill[TTx]) save(ctx context.Context, seen int64) error {
	text, err := json.Marshal(state{Version: stateVersion, Scope: b.scope(), Seen: seen})
	if err != nil {
		return err
	}
	return b.cfg.Checkpoint.Save(ctx, text)
}
