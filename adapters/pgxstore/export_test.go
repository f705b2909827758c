package pgxstore

// SetFlush says whether a synchronous standby is configured.
func SetFlush(s *Store, on bool) { s.flush.Store(on) }
