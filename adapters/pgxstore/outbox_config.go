package pgxstore

import (
	"errors"
	"time"
)

// OutboxConfig says how a Store keeps the messages of package outbox. All programs on one schema should agree on it.
type OutboxConfig struct {
	// KeepSent is how long a message stays in the table outbox_sent after the broker confirmed it, for people to look at.
	// Whatever its value, a pending message is never forgotten. Defaults to 0: it is deleted at once, which costs least.
	KeepSent time.Duration
}

func (c OutboxConfig) validate() error {
	if c.KeepSent < 0 {
		return errors.New("pgxstore: Config.Outbox.KeepSent is negative")
	}
	return nil
}
