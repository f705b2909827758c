package pgrelay

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync"
	"sync/atomic"
	"time"

	"github.com/txonce/txonce/internal/columns"
	"github.com/txonce/txonce/internal/shares"
	"github.com/txonce/txonce/internal/watermark"
	"github.com/txonce/txonce/outbox/driver"
)

// Session is an driver.Session. Its methods are in the files that are named after them.
type Session struct {
	cfg   Config
	owner string // a UUID that identifies the session

	renewing sync.Mutex // serializes Renew and Close
	ledger   shares.Ledger

	held  holding
	scans scans
	marks watermark.Marks
	found atomic.Int64 // messages that the last Lease has returned

	chores chores
}

var (
	_ driver.Session    = (*Session)(nil)
	_ driver.Waker      = (*Session)(nil)
	_ driver.Maintainer = (*Session)(nil)
)

// Open returns a session. Its first Renew begins the hold.
func Open(cfg Config) *Session {
	cfg.Name = columns.Text(cfg.Name)
	s := &Session{cfg: cfg, owner: newOwner()}
	s.held.wakes, s.held.shards, s.held.notified = cfg.Wakes, shares.Held{}, map[int]bool{}
	s.marks.Warn = cfg.Older
	s.chores.session = s
	return s
}

func newOwner() string {
	var n [16]byte
	rand.Read(n[:]) // never fails
	digits := hex.EncodeToString(n[:])
	return digits[:8] + "-" + digits[8:12] + "-" + digits[12:16] + "-" + digits[16:20] + "-" + digits[20:]
}

// Wake implements driver.Waker.
func (s *Session) Wake() <-chan struct{} { return s.cfg.Wakes.Wake() }

// Close implements driver.Session.
func (s *Session) Close(ctx context.Context) error {
	s.renewing.Lock()
	defer s.renewing.Unlock()
	begun := s.held.end()
	s.cfg.HoldsAll(time.Time{})
	if !begun {
		return nil
	}
	return s.cfg.Conns.Hold(ctx, "close", Step{SQL: s.cfg.SQL.End, Args: []any{s.owner}},
		Step{SQL: s.cfg.SQL.GiveBackAll, Args: []any{s.owner}})
}
