package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// held measures how fast bursts are committed and confirmed, before and while another connection holds a transaction
// open. Each burst follows a steady load. An open transaction keeps the database from removing rows, of any table, that
// were deleted after its snapshot. Both are measured in one place, in quick succession: two runs some minutes apart
// differ by more than the effect.
func (b *bench) held(ctx context.Context) error {
	b.progress("held")
	p := &place{tuned: true, seen: newConfirmed(0)}
	return b.in(ctx, outboxKinds[0], p, func(ctx context.Context, s system) error {
		return while(ctx, s.Relay, func(ctx context.Context) error {
			l := &load{system: s, place: p, burst: 100_000 / b.size.backlog, bursts: b.size.backlogRounds}
			free, err := l.measure(ctx, b.size.idle)
			if err != nil {
				return err
			}
			tx, err := p.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
			if err != nil {
				return err
			}
			defer tx.Rollback(context.WithoutCancel(ctx))
			if err := effect(ctx, tx, "held open"); err != nil { // gives it a snapshot and a transaction id
				return err
			}
			holding, err := l.measure(ctx, 3*b.size.idle)
			if err != nil {
				return err
			}
			ways := []way{{name: "no transaction is open"}, {name: "a transaction is held open", base: "no transaction is open"}}
			b.report.table("held", "messages/s").add("committed and published", ways,
				series{ways[0].name: free, ways[1].name: holding})
			return nil
		})
	})
}

// load is the messages for a system.
type load struct {
	system
	place  *place
	sent   int
	burst  int // messages
	bursts int
}

// measure returns the rates of bursts after 3,000 messages per second for the duration steady.
func (l *load) measure(ctx context.Context, steady time.Duration) (rates []float64, err error) {
	const chunk, every = 300, 100 * time.Millisecond
	chunks := int(steady / every)
	l.place.seen.reset(chunks * chunk)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for range chunks {
		<-tick.C
		if err := l.fill(ctx, chunk); err != nil {
			return nil, err
		}
	}
	for range l.bursts {
		if err := l.place.seen.wait(ctx); err != nil {
			return nil, err
		}
		l.place.seen.reset(l.burst)
		began := time.Now()
		if err := l.fill(ctx, l.burst); err != nil {
			return nil, err
		}
		if err := l.place.seen.wait(ctx); err != nil {
			return nil, err
		}
		rates = append(rates, float64(l.burst)/time.Since(began).Seconds())
	}
	return rates, nil
}

func (l *load) fill(ctx context.Context, n int) error {
	l.sent += n
	return l.Fill(ctx, l.sent-n, l.sent)
}

// stats measures how long a reading of the outbox's statistics takes.
func (b *bench) stats(ctx context.Context) error {
	n := b.size.keys
	b.progress("stats: fill %s messages", number(float64(n)))
	return b.server.inWorld(ctx, 2, false, func(ctx context.Context, w *world) error {
		_, err := w.pool.Exec(ctx, `INSERT INTO outbox_messages (shard, id, topic, key, payload)
			SELECT i % 64, i::text, 'events', convert_to((i % 1000)::text, 'UTF8'), $2 FROM generate_series(1, $1::bigint) AS i`, n, payload)
		if err != nil {
			return err
		}
		ways := []way{{"Stats", "", func(ctx context.Context) (float64, error) {
			began := time.Now()
			stats, err := w.store.Outbox().Stats(ctx)
			took := time.Since(began)
			if err == nil && (stats.Pending < int64(n)*85/100 || stats.Pending > int64(n)*115/100) {
				err = fmt.Errorf("%d messages are pending, of %d", stats.Pending, n)
			}
			return took.Seconds() * 1000, err
		}}}
		figures, err := rounds(ctx, b.size.rounds, true, ways)
		if err == nil {
			b.report.table("stats", "ms").add(number(float64(n))+" messages are pending", ways, figures)
		}
		return err
	})
}
