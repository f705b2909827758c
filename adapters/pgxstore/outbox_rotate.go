package pgxstore

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txonce/txonce/internal/dialect"
)

const (
	rotateEvery = 10 * time.Second
	rotateAt    = 32 << 20               // bytes of a generation: then sooner
	lockFirst   = time.Millisecond       // how long emptying waits for a generation's lock
	lockMost    = 150 * time.Millisecond // after some failures; so long writers wait behind it
	emptyLimit  = "250ms"                // for all of it
)

// rotation is what one session remembers of the generations. Any number of sessions may rotate: correctness never depends
// on which generation a message stands in.
type rotation struct {
	current int
	since   time.Time
	wait    [dialect.Generations]time.Duration // for the lock, the next time
}

// rotate empties generations that take nothing any more, and has another one take what comes.
func (s *session) rotate(ctx context.Context) error {
	if s.store.cfg.Outbox.Mode != OutboxRotating {
		return nil
	}
	current, bytes, err := s.generations(ctx)
	if err != nil {
		return err
	}
	r := &s.rotating
	if now := time.Now(); r.since.IsZero() || r.current != current {
		r.current, r.since = current, now
	}
	clean := -1
	for i := 1; i < dialect.Generations; i++ {
		g := (current + i) % dialect.Generations
		if bytes[g] > 0 {
			if err := s.empty(ctx, g, current); err != nil {
				return err
			}
		} else if clean < 0 {
			clean = g
		}
	}
	if clean < 0 || bytes[current] == 0 || bytes[current] < rotateAt && time.Since(r.since) < cmp.Or(s.store.cfg.Outbox.RotateEvery, rotateEvery) {
		return nil
	}
	_, err = s.store.cfg.Pool.Exec(ctx, s.store.outbox.Rotate, clean)
	return s.store.outboxError("rotate", err)
}

func (s *session) generations(ctx context.Context) (current int, bytes []int64, err error) {
	err = s.store.cfg.Pool.QueryRow(ctx, s.store.outbox.Generations).Scan(&current, &bytes)
	return current, bytes, s.store.outboxError("rotate", err)
}

// empty moves the few messages that are left in generation from to generation to, and truncates it. Whoever uses it at the
// moment goes first: then it is for the next time.
func (s *session) empty(ctx context.Context, from, to int) error {
	wait := &s.rotating.wait[from]
	*wait = min(max(*wait, lockFirst), lockMost)
	err := s.store.outboxTx(ctx, "empty a generation", func(b *pgx.Batch) {
		b.Queue(`SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', $2, true)`, wait.String(), emptyLimit)
		b.Queue(s.store.outbox.Empty[from][to])
	})
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == "55P03" || pg.Code == "57014" || pg.Code == "40P01") {
		*wait *= 2
		return nil
	}
	*wait = 0
	return err
}
