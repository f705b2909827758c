package sqlstore

import "context"

// Check does the checks of Register, and registers nothing: its error names the first setting or missing table that would make every
// message fail, or that could lose commits. It reads only.
func (s *Store) Check(ctx context.Context) error { return s.refused(s.check(ctx)) }
