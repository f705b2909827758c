package deduptest

import (
	"context"
	"fmt"
	"slices"

	"github.com/txonce/txonce/dedup"
)

// RegisterSources implements driver.Registrar.
func (s *Store) RegisterSources(ctx context.Context, consumer string, sources []string) error {
	if err := (dedup.Key{Consumer: consumer, ID: "-"}).Validate(); err != nil {
		return err
	}
	s.db.mu.Lock()
	defer s.db.mu.Unlock()
	if err := s.db.reachable(ctx); err != nil {
		return err
	}
	recorded := s.db.sources[consumer]
	known := len(recorded) == 0 || len(sources) == 0
	for _, source := range sources {
		if source == "" || len(source) > 1024 {
			return fmt.Errorf("deduptest: a source of %d bytes: want 1 to 1024", len(source))
		}
		known = known || slices.Contains(recorded, source)
	}
	if !known {
		return fmt.Errorf("%w: consumer %q gets its messages from %q, and this process would take them from %q",
			dedup.ErrNameTaken, consumer, recorded, sources)
	}
	for _, source := range sources {
		if !slices.Contains(recorded, source) {
			recorded = append(recorded, source)
		}
	}
	s.db.sources[consumer] = recorded
	return nil
}
