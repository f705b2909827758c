package sqlstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/txonce/txonce/outbox/driver"
)

// session is a session of a node. Its helpers repeat what fails on a busy machine: MariaDB ends a relay's transaction
// that is idle for 5 s.
type session struct {
	driver.Session
	n *node
}

func open(t testing.TB, n *node, ttl time.Duration) session {
	t.Helper()
	s, err := n.Open(t.Context(), driver.SessionOptions{Name: t.Name(), TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.WithoutCancel(t.Context())) })
	return session{s, n}
}

func (s session) tryRenew(ctx context.Context) (hold driver.Hold, err error) {
	err = again(s.n, func() (err error) {
		hold, err = s.Renew(ctx)
		return err
	})
	return hold, err
}

func renew(t testing.TB, s session) driver.Hold {
	t.Helper()
	hold, err := s.tryRenew(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return hold
}

func (s session) tryLease(ctx context.Context, want driver.Want) (msgs []driver.Leased, err error) {
	err = again(s.n, func() (err error) {
		msgs, err = s.Lease(ctx, want)
		return err
	})
	return msgs, err
}

func lease(t testing.TB, s session) []driver.Leased {
	t.Helper()
	msgs, err := s.tryLease(t.Context(), driver.Want{Limit: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	return msgs
}

func (s session) trySettle(ctx context.Context, outcomes []driver.Outcome) error {
	return again(s.n, func() error { return s.Settle(ctx, outcomes) })
}

func settle(t testing.TB, s session, outcomes []driver.Outcome) {
	t.Helper()
	if err := s.trySettle(t.Context(), outcomes); err != nil {
		t.Fatal(err)
	}
}

func (s session) tryTidy(ctx context.Context) error {
	return again(s.n, func() error { return s.Session.(driver.Maintainer).Maintain(ctx) })
}

func outcomes(v driver.Verdict, msgs ...driver.Leased) (list []driver.Outcome) {
	for _, m := range msgs {
		list = append(list, driver.Outcome{Leased: m, Verdict: v, Err: errors.New("refused")})
	}
	return list
}
