package pgxstore

import (
	"errors"
	"testing"
	"time"
)

// A Lease that waited in vain says why when the stream broke meanwhile, though there is one again: it may break each time.
func TestOutboxWALRemembersItsFailure(t *testing.T) {
	broke, asked := errors.New("it broke"), time.Now()
	var s walSession
	if err := s.failedSince(asked); err != nil {
		t.Errorf("nothing has failed, and failedSince = %v", err)
	}
	s.setStream(nil, broke)
	s.setStream(&walStream{}, nil)
	if err := s.failedSince(asked); !errors.Is(err, broke) {
		t.Errorf("failedSince = %v; want %v", err, broke)
	}
	if err := s.failedSince(s.lastFailed.Add(1)); err != nil {
		t.Errorf("nothing has failed since, and failedSince = %v", err)
	}
}
