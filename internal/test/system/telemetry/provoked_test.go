package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/adapters/telemetry"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/internal/test/wireproxy"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/relay"
)

// word is what one delivery of the message "1" is counted as.
type word struct {
	outcome observe.Outcome
	cause   observe.Cause
	result  observe.Result // of its transaction; empty: it has none
}

// provocations make a consumer on PostgreSQL report each outcome, each cause and each result.
var provocations = []struct {
	word
	run func(p *provocation)
}{
	{word{observe.Processed, "", observe.Committed}, func(p *provocation) { p.handled(p.trace, succeed, message("1")) }},
	{word{observe.Duplicate, "", observe.Committed}, func(p *provocation) {
		p.handled(nil, succeed, message("1"))
		p.handled(p.trace, succeed, message("1"))
	}},
	{word{observe.Parked, observe.CausePermanent, observe.RolledBack}, func(p *provocation) {
		p.handled(p.trace, fail(consumer.Permanent(errProvoked)), message("1"))
	}},
	{word{observe.Parked, observe.CauseExhausted, observe.RolledBack}, func(p *provocation) {
		p.delivered(config{MaxAttempts: 1, Handle: fail(errProvoked), Trace: p.trace}, message("1"))
	}},
	{word{observe.Parked, observe.CausePanic, observe.RolledBack}, func(p *provocation) {
		p.delivered(config{MaxAttempts: 1, Trace: p.trace, Handle: func(context.Context, pgx.Tx, *consumer.Message) error { panic("provoked") }}, message("1"))
	}},
	{word{observe.Parked, observe.CauseMismatch, observe.RolledBack}, func(p *provocation) {
		p.handled(nil, succeed, message("1"))
		other := message("1")
		other.Payload = []byte("other")
		p.handled(p.trace, succeed, other)
	}},
	{word{observe.Parked, observe.CauseUnprovable, observe.RolledBack}, func(p *provocation) {
		p.handled(nil, succeed, message("before"))
		p.exec(`UPDATE txonce_windows SET first_run = first_run - interval '100 days' WHERE consumer = $1`, p.name)
		p.exec(`UPDATE txonce_sweep SET forgotten_until = now() - interval '20 days'`)
		old := message("1")
		old.Time = time.Now().Add(-50 * 24 * time.Hour)
		p.on(p.newStore()).handled(p.trace, succeed, old)
	}},
	{word{observe.Parked, observe.CauseNoKey, ""}, func(p *provocation) { p.handled(p.trace, succeed, message("")) }},
	{word{observe.Parked, observe.CauseUndecodable, ""}, func(p *provocation) {
		garbage := message("1")
		garbage.Malformed = errProvoked
		p.handled(p.trace, succeed, garbage)
	}},
	{word{observe.Parked, observe.CauseKnownContent, observe.RolledBack}, func(p *provocation) {
		first, again := message("0"), message("1")
		first.Aliases, again.Aliases = []string{"signature"}, []string{"signature"}
		p.handled(nil, succeed, first)
		p.handled(p.trace, succeed, again)
	}},
	{word{observe.Parked, observe.CauseCrashed, ""}, provokeCrashed},
	{word{observe.Parked, observe.CauseUnknown, observe.RolledBack}, func(p *provocation) {
		p.handled(p.trace, func(ctx context.Context, tx pgx.Tx, _ *consumer.Message) error {
			_, err := tx.Conn().Exec(ctx, `COMMIT`)
			return err
		}, message("1"))
	}},
	{word{observe.Rejected, observe.CausePermanent, observe.RolledBack}, func(p *provocation) {
		p.on(struct{ dedup.Store[pgx.Tx] }{p.newStore()}).delivered(
			config{
				RejectGivenUp: true, TrustHandlers: true, Trace: p.trace,
				Handle: fail(consumer.Permanent(errProvoked)),
			}, message("1"))
	}},
	{
		word{observe.Retried, observe.CauseHandler, observe.RolledBack},
		func(p *provocation) { p.handled(p.trace, fail(errProvoked), message("1")) },
	},
	{word{observe.Held, observe.CauseInFlight, observe.RolledBack}, func(p *provocation) {
		p.handled(nil, func(context.Context, pgx.Tx, *consumer.Message) error {
			// while it runs, another process gets the message
			p.on(p.waitingStore(2*time.Second)).handled(p.trace, succeed, message("1"))
			return nil
		}, message("1"))
	}},
	{word{observe.Held, observe.CauseDatabase, observe.RolledBack}, func(p *provocation) {
		p.handled(p.trace, statement(`SELECT pg_terminate_backend(pg_backend_pid())`), message("1"))
	}},
	{word{observe.Held, observe.CauseDatabase, observe.Deadlock}, func(p *provocation) {
		p.handled(p.trace, statement(`DO $$ BEGIN RAISE EXCEPTION 'provoked' USING ERRCODE = 'deadlock_detected'; END $$`), message("1"))
	}},
	{word{observe.Held, observe.CauseDatabase, observe.CommitUnknown}, provokeCommitUnknown},
	{word{observe.Held, observe.CauseCancelled, observe.RolledBack}, func(p *provocation) {
		ctx, cancel := context.WithCancel(p.Context())
		defer cancel()
		c := p.consumer(config{Trace: p.trace, Handle: func(ctx context.Context, _ pgx.Tx, _ *consumer.Message) error {
			cancel()
			return ctx.Err()
		}})
		defer c.Close()
		c.ProcessBatch(ctx, []*consumer.Message{message("1")})
	}},
	{word{observe.Held, observe.CauseBudget, observe.RolledBack}, func(p *provocation) {
		spent := p.consumer(config{ParkLimit: consumer.ParkLimit{Burst: 1, PerMinute: 1}, Handle: fail(consumer.Permanent(errProvoked))})
		defer spent.Close()
		for _, m := range []*consumer.Message{message("0"), message("1")} {
			ctx := p.Context()
			if m.ID == "1" {
				ctx = driver.WithTrace(ctx, p.trace)
			}
			spent.ProcessBatch(ctx, []*consumer.Message{m})
		}
	}},
}

var errProvoked = errors.New("provoked")

type config = consumer.Config[pgx.Tx]

func succeed(context.Context, pgx.Tx, *consumer.Message) error { return nil }

func fail(err error) consumer.Handler[pgx.Tx] {
	return func(context.Context, pgx.Tx, *consumer.Message) error { return err }
}

func statement(sql string) consumer.Handler[pgx.Tx] {
	return func(ctx context.Context, tx pgx.Tx, _ *consumer.Message) error {
		_, err := tx.Exec(ctx, sql)
		return err
	}
}

// forgetful is a store whose process ends before it takes back the letter of a trial.
type forgetful struct{ *pgxstore.Store }

func (forgetful) TakeDeadLetter(context.Context, pgx.Tx, consumer.DeadLetter) error {
	return errProvoked
}

func provokeCrashed(p *provocation) {
	suspect := message("1")
	suspect.Attempt = 50
	waits := fail(&consumer.RetryError{Err: errProvoked, Held: true})
	for range 3 {
		p.on(forgetful{p.newStore()}).delivered(config{MaxAttempts: 5, Handle: waits}, suspect)
	}
	p.on(p.newStore()).delivered(config{MaxAttempts: 5, Handle: waits, Trace: p.trace}, suspect)
}

func provokeCommitUnknown(p *provocation) {
	var armed atomic.Bool
	dsn := wireproxy.PostgresEach(p, p.dsn, func() (deduptest.Fault, bool) {
		return deduptest.AnswerLost,
			armed.Swap(false)
	})
	pool := newPool(p, dsn)
	store, err := pgxstore.New(pgxstore.Config{Pool: pool})
	if err != nil {
		p.Fatal(err)
	}
	p.on(store).handled(p.trace, func(context.Context, pgx.Tx, *consumer.Message) error {
		armed.Store(true)
		return nil
	}, message("1"))
}

// provocation is one case: a consumer with a name of its own, and hooks that count.
type provocation struct {
	*testing.T
	name  string
	dsn   string
	pool  *pgxpool.Pool
	store dedup.Store[pgx.Tx]
	trace *consumer.Trace
}

func (p *provocation) newStore() *pgxstore.Store { return p.waitingStore(0) }

// waitingStore returns a store that waits for a key, and for a connection, for as long as claimTimeout; 0: the default.
func (p *provocation) waitingStore(claimTimeout time.Duration) *pgxstore.Store {
	p.Helper()
	store, err := pgxstore.New(pgxstore.Config{Pool: p.pool, ClaimTimeout: claimTimeout})
	if err != nil {
		p.Fatal(err)
	}
	return store
}

// on returns p with another store, as another process has it.
func (p *provocation) on(store dedup.Store[pgx.Tx]) *provocation {
	other := *p
	other.store = store
	return &other
}

func (p *provocation) consumer(cfg config) *consumer.Consumer[pgx.Tx] {
	p.Helper()
	cfg.Name, cfg.Store, cfg.Key, cfg.Logger = p.name, p.store, consumer.MessageID, slog.New(slog.DiscardHandler)
	cfg.Backoff = func(int) time.Duration { return 0 }
	c, err := consumer.New(cfg)
	if err != nil {
		p.Fatal(err)
	}
	return c
}

// delivered delivers m once.
func (p *provocation) delivered(cfg config, m *consumer.Message) {
	p.Helper()
	c := p.consumer(cfg)
	defer c.Close()
	c.ProcessBatch(p.Context(), []*consumer.Message{m})
}

func (p *provocation) handled(trace *consumer.Trace, handle consumer.Handler[pgx.Tx], m *consumer.Message) {
	p.Helper()
	p.delivered(config{Trace: trace, Handle: handle}, m)
}

func (p *provocation) exec(sql string, args ...any) {
	p.Helper()
	if _, err := p.pool.Exec(p.Context(), sql, args...); err != nil {
		p.Fatal(err)
	}
}

func newPool(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// Each word that a consumer on PostgreSQL can report is counted once when it happens once, by a counter that was
// exported before.
func TestEachWordIsCountedOnce(t *testing.T) {
	t.Parallel()
	dsn := testdb.Tables(t, testdb.Postgres(t), "")
	pool := newPool(t, dsn)
	for i, c := range provocations {
		t.Run(strings.TrimSuffix(fmt.Sprint(c.outcome, " ", c.cause, " ", c.result), " "), func(t *testing.T) {
			r := newRig(t, telemetry.Config{})
			p := &provocation{T: t, name: fmt.Sprint("consumer ", i), dsn: dsn, pool: pool}
			p.store = p.newStore()
			p.trace = r.Consumer(telemetry.ConsumerConfig{Name: p.name, Topics: []string{"orders"}})
			series := fmt.Sprintf("cause=%s,consumer=%s,outcome=%s,topic=orders", c.cause, p.name, c.outcome)
			if _, exported := values(t, r.collect(t)["txonce.deliveries"])[series]; !exported {
				t.Errorf("%s is not exported before it first occurs", series)
			}
			c.run(p)
			metrics := r.collect(t)
			if diff := cmp.Diff(map[string]int64{series: 1},
				positive(values(t, metrics["txonce.deliveries"]))); diff != "" {
				t.Errorf("txonce.deliveries (-want +got):\n%s", diff)
			}
			want := map[string]int64{}
			if c.result != "" {
				want[fmt.Sprintf("consumer=%s,result=%s,retry=%t", p.name, c.result, false)] = 1
			}
			if diff := cmp.Diff(want, positive(values(t, metrics["txonce.attempts"]))); diff != "" {
				t.Errorf("txonce.attempts (-want +got):\n%s", diff)
			}
		})
	}
}

func positive(all map[string]int64) map[string]int64 {
	found := map[string]int64{}
	for set, n := range all {
		if n != 0 {
			found[set] = n
		}
	}
	return found
}

// A word that no test provokes may be one that nothing counts.
func TestEachWordIsProvoked(t *testing.T) {
	// of relays only: TestAnUnavailableBrokerIsCountedOnce
	provoked := map[string]bool{string(observe.CauseBroker): true}
	for _, c := range provocations {
		provoked[string(c.outcome)], provoked[string(c.cause)], provoked[string(c.result)] = true, true, true
	}
	var words []string
	for _, w := range observe.Outcomes() {
		words = append(words, string(w))
	}
	for _, w := range observe.Causes() {
		words = append(words, string(w))
	}
	for _, w := range observe.Results() {
		words = append(words, string(w))
	}
	for _, w := range words {
		if !provoked[w] {
			t.Errorf("%q is in package observe, and provocations has no way to provoke it", w)
		}
	}
}

// publisher answers each call with the next of its errors, and then with nil.
type publisher struct{ errs []error }

func (p *publisher) Publish(_ context.Context, msgs []outbox.Message) []error {
	answers := make([]error, len(msgs))
	if len(p.errs) > 0 {
		for i := range answers {
			answers[i] = p.errs[0]
		}
		p.errs = p.errs[1:]
	}
	return answers
}

func TestAnUnavailableBrokerIsCountedOnce(t *testing.T) {
	t.Parallel()
	pool := newPool(t, testdb.Tables(t, testdb.Postgres(t), ""))
	store, err := pgxstore.New(pgxstore.Config{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		return store.Enqueue(t.Context(), tx, outbox.Message{ID: "1", Topic: "charges"})
	}); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, telemetry.Config{})
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	confirmed := &relay.Trace{Settled: func(_ context.Context, all []relay.Settlement) {
		if all[0].Outcome == observe.Processed {
			stop()
		}
	}}
	outgoing, err := relay.New(relay.Config{
		Queue: store, Publisher: &publisher{[]error{&outbox.UnavailableError{Err: errProvoked}}},
		Logger: slog.New(slog.DiscardHandler),
		Trace:  r.Relay("billing").Then(confirmed),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := outgoing.Run(ctx); err != nil {
		t.Fatal(err)
	}
	const sent = "messaging.destination.name=charges,messaging.operation.name=send"
	want := map[string]int64{"error.type=broker," + sent: 1, sent: 1}
	if diff := cmp.Diff(want, values(t, r.collect(t)["messaging.client.sent.messages"])); diff != "" {
		t.Errorf("messaging.client.sent.messages (-want +got):\n%s", diff)
	}
}
