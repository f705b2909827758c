package pgxstore

import (
	"errors"
	"fmt"
	"time"
)

// OutboxConfig says how a Store keeps the messages of package outbox. All programs on one schema should agree on it.
type OutboxConfig struct {
	// Mode is where committed messages stand until they are published. Defaults to OutboxTable.
	Mode OutboxMode

	// KeepSent is how long a message stays in the table outbox_sent after the broker confirmed it, for people to look at.
	// Whatever its value, a pending message is never forgotten. Defaults to 0: it is deleted at once, which costs least.
	KeepSent time.Duration

	// RotateEvery is how long a generation takes what comes before another one does, in OutboxRotating; sooner at 32 MB.
	// Defaults to 10 s.
	RotateEvery time.Duration
}

// OutboxMode is where committed messages stand until they are published.
type OutboxMode int

// Modes of the outbox.
const (
	OutboxTable    OutboxMode = iota // in a table that VACUUM cleans
	OutboxRotating                   // in generations of that table that are emptied by TRUNCATE, see docs/outbox.md
)

func (c OutboxConfig) validate() error {
	switch {
	case c.Mode < OutboxTable || c.Mode > OutboxRotating:
		return fmt.Errorf("pgxstore: Config.Outbox.Mode %d is unknown", c.Mode)
	case c.KeepSent < 0:
		return errors.New("pgxstore: Config.Outbox.KeepSent is negative")
	case c.RotateEvery < 0:
		return errors.New("pgxstore: Config.Outbox.RotateEvery is negative")
	}
	return nil
}
