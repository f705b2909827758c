package pgxstore

import "context"

type rotation struct{}

// Tidy implements outbox.Tidier.
func (s *session) Tidy(ctx context.Context) error { return nil }
