package pgxstore

import "context"

// Check does the checks of Register, and registers nothing: its error names the first setting or missing table that would make every
// message fail, or that could lose commits. It writes nothing. Behind a pooler it resets a session
// that another client has changed.
func (s *Store) Check(ctx context.Context) error { return refusedAccess(s.check(ctx)) }
