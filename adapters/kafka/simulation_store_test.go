package kafka_test

import (
	"context"
	"time"

	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/sim"
)

// memberStore has the boundaries of transactions.
type memberStore struct {
	*consumertest.Store
	m *groupMember
}

func (s *memberStore) InTx(ctx context.Context, recs []dedup.Record,
	fn func(*deduptest.Tx, []dedup.Claim) error,
) error {
	return s.Store.InTx(ctx, recs, func(tx *deduptest.Tx, claims []dedup.Claim) error {
		switch s.m.at("claimed", recs[0].Key.ID) {
		case sim.Gone, "cut", "crash":
			tx.Lose()
			return errConnection
		}
		return fn(tx, claims)
	})
}

// commit is the boundary of COMMIT.
func (s *memberStore) commit(ctx context.Context, tx *deduptest.Tx) error {
	defer func() {
		s.m.g.mu.Lock()
		defer s.m.g.mu.Unlock()
		s.m.g.latest = time.Now()
	}()
	switch what := s.m.at("commit", ""); what {
	case sim.Gone, "lost", "crash before":
		tx.Lose()
		return errConnection
	case "answer lost", "crash after":
		_ = tx.Commit(ctx)
		s.m.g.keep()
		return errConnection
	}
	err := tx.Commit(ctx)
	s.m.g.keep()
	return err
}

// at parks the member, and carries out a crash before, and what concerns the database. "crash after" is the caller's to
// end, with p.Crash.
func (m *groupMember) at(boundary, about string) string {
	f := m.p.At(boundary, about)
	switch f.Action {
	case "goes back":
		if !m.g.goBack(m.p) {
			m.g.void = append(m.g.void, f)
		}
		return ""
	case "crash", "crash before":
		m.p.Crash()
	}
	return f.Action
}
