package driver

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/txonce/txonce/dedup"
)

// The longest texts of a position, in bytes, that all databases can store. A consumer's name has dedup.MaxConsumer.
const (
	maxPositionSource = 1024
	maxPositionLog    = 255
)

// Validate returns an error that names the field that a database cannot store, or nil.
func (id PositionID) Validate() error {
	if err := id.valid("consumer", id.Consumer, 1, dedup.MaxConsumer); err != nil {
		return err
	}
	return id.valid("source", id.Source, 1, maxPositionSource)
}

// Validate returns an error that names the field that a database cannot store, or nil.
func (p *Position) Validate() error {
	if err := p.PositionID.Validate(); err != nil {
		return err
	}
	return p.valid("identity of the log", p.Log, 0, maxPositionLog)
}

// ValidateMoves returns an error that names the move that no session can mean, or nil.
func ValidateMoves(moves []PositionMove) error {
	seen := make(map[PositionID]bool, len(moves))
	for _, m := range moves {
		if err := m.PositionID.Validate(); err != nil {
			return err
		}
		if m.From > m.Next {
			return fmt.Errorf("%v: a move from %d back to %d", m.PositionID, m.From, m.Next)
		}
		if seen[m.PositionID] {
			return fmt.Errorf("%v: two moves in one call", m.PositionID)
		}
		seen[m.PositionID] = true
	}
	return nil
}

func (id PositionID) valid(what, text string, least, most int) error {
	switch {
	case len(text) < least || len(text) > most:
		return fmt.Errorf("%v: the %s has %d bytes: want %d to %d", id, what, len(text), least, most)
	case !utf8.ValidString(text):
		return fmt.Errorf("%v: the %s is not valid UTF-8", id, what)
	case strings.IndexByte(text, 0) >= 0:
		return fmt.Errorf("%v: the %s contains a NUL byte", id, what)
	}
	return nil
}

// String names the position in errors.
func (id PositionID) String() string {
	return fmt.Sprintf("position of consumer %q in partition %d of %q", shortened(id.Consumer), id.Partition,
		shortened(id.Source))
}

func shortened(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}
