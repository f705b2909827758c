package decide

// Streak is what one pass has learned about the database.
type Streak struct {
	Waits  int  // transactions with a single message that ended because it had waited for a lock, or may have
	Faults int  // transactions with a single message that the database failed, in a row
	Worked bool // a handler's work was committed
	Down   bool // the database is at fault: nothing more is tried
}

// After returns what is known after f, an error of the database that a message met in a transaction of its own. A
// message that may have waited for a lock says nothing about the others, which may use other rows: the pass goes on.
// culprit says that the message has met such errors before: known culprits do not stop each other while other messages
// are committed.
func (s Streak) After(f Failure, shortWaits, culprit bool) Streak {
	if f.waited(shortWaits) {
		s.Waits++
		return s
	}
	s.Faults++
	s.Down = s.Faults >= 2 && !(culprit && s.Worked)
	return s
}
