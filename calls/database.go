package calls

import (
	"sync"
	"time"

	"github.com/txonce/txonce/dedup/driver"
)

// database is what this process knows of the database. Another server may lack the records of tries that the one before
// had committed.
type database struct {
	server string
	latest time.Time // that its clock has shown
	// when no request can be under way any more whose record it may lack; zero: this process has met no other server
	quiet time.Time
}

// sightings keeps the database that answered last. It is safe for concurrent use.
type sightings struct {
	mu   sync.Mutex
	last database
}

// saw notes an answer, and returns what is known of the database.
func (s *sightings) saw(c driver.Call, r rules) database {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := &s.last
	// Answers that overtake each other are no clock that was set back.
	setBack := c.Now.Before(d.latest.Add(-max(r.settles, time.Second)))
	switch {
	case d.latest.IsZero():
		*d = database{server: c.Server, latest: c.Now}
	case setBack, c.Server != d.server && !c.Now.Before(d.quiet):
		*d = database{server: c.Server, latest: c.Now, quiet: c.Now.Add(r.timeout + r.settles)}
	case c.Server != d.server: // where servers of a cluster answer in turn, calls would wait for ever
		d.server, d.latest = c.Server, c.Now
	case c.Now.After(d.latest):
		d.latest = c.Now
	}
	return *d
}
