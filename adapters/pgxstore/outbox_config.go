package pgxstore

import (
	"errors"
	"time"
)

// OutboxConfig configures how a Store keeps the messages of package outbox. Each relay decides with its own
// values, so all programs on one schema should use the same ones.
type OutboxConfig struct {
	// KeepSent is how long a message stays in the table outbox_sent after the broker confirmed it, for inspection.
	// Pending messages are kept in any case.
	//
	// Defaults to 0: a confirmed message is deleted at once, which costs least.
	KeepSent time.Duration
}

func (c OutboxConfig) validate() error {
	if c.KeepSent < 0 {
		return errors.New("pgxstore: Config.Outbox.KeepSent is negative")
	}
	return nil
}
