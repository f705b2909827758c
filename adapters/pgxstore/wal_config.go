package pgxstore

import (
	"errors"
	"fmt"
	"regexp"
)

var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

func (c OutboxConfig) validateWAL() error {
	switch {
	case c.Slot != "" && !slotName.MatchString(c.Slot):
		return fmt.Errorf("pgxstore: Config.Outbox.Slot %q: want 1 to 63 of a-z, 0-9 and _", c.Slot)
	case c.WALMessages < 0:
		return errors.New("pgxstore: Config.Outbox.WALMessages is negative")
	case c.WALBytes < 0:
		return errors.New("pgxstore: Config.Outbox.WALBytes is negative")
	case c.Mode != OutboxWAL && (c.Slot != "" || c.WALMessages != 0 || c.WALBytes != 0):
		return errors.New("pgxstore: Config.Outbox.Slot, WALMessages and WALBytes are of OutboxWAL alone")
	}
	return nil
}

// useWAL refuses a configuration in which the outbox cannot be kept in the write-ahead log, and sets its defaults.
func (s *Store) useWAL() error {
	if s.cfg.Outbox.Mode != OutboxWAL {
		return nil
	}
	if s.cfg.Pool.Config().MaxConns < 2 {
		return errors.New("pgxstore: Config.Outbox.Mode OutboxWAL needs a Config.Pool of at least 2 connections")
	}
	if s.cfg.Outbox.WALMessages == 0 {
		s.cfg.Outbox.WALMessages = 20_000
	}
	if s.cfg.Outbox.WALBytes == 0 {
		s.cfg.Outbox.WALBytes = 64 << 20
	}
	return nil
}
