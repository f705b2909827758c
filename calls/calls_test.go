package calls_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/txonce/txonce/calls"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/test/leaktest"
	"github.com/txonce/txonce/outbox"
	outboxdriver "github.com/txonce/txonce/outbox/driver"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// store is a deduptest.Store that records what is enqueued.
type store struct {
	*deduptest.Store
	enqueued []outbox.Message
	keep     func(driver.CallKeeper[*deduptest.Tx]) driver.CallKeeper[*deduptest.Tx] // nil: as it is
	commits  atomic.Pointer[error]                                                   // of InTx once, after COMMIT
}

func (s *store) InTx(ctx context.Context, recs []dedup.Record, fn func(*deduptest.Tx, []dedup.Claim) error) error {
	err := s.Store.InTx(ctx, recs, fn)
	if lost := s.commits.Swap(nil); err == nil && lost != nil {
		err = *lost
	}
	return err
}

func (s *store) Enqueue(_ context.Context, _ *deduptest.Tx, msgs ...outbox.Message) error {
	for _, m := range msgs {
		if err := m.Validate(); err != nil {
			return err
		}
		s.enqueued = append(s.enqueued, m)
	}
	return nil
}

func (s *store) Calls() driver.CallKeeper[*deduptest.Tx] {
	if s.keep != nil {
		return s.keep(s.Store.Calls())
	}
	return s.Store.Calls()
}

type config = calls.Config[*deduptest.Tx]

func validConfig() config {
	return config{
		Name: "charge", Store: &store{Store: deduptest.NewStore()},
		Do:   func(context.Context, calls.Call) (calls.Result, error) { return nil, nil },
		Done: func(context.Context, *deduptest.Tx, calls.Call, calls.Result) error { return nil },
	}
}

// bank is another system, and what its calls did here.
type bank struct {
	t     *testing.T
	cfg   config
	store *store
	calls *calls.Calls[*deduptest.Tx]

	mu      sync.Mutex
	charged map[string]int // by idempotency key
	asked   int
	do      []func(key string) error // the first answers of Do; then it charges and returns nil
}

var errLost = errors.New("connection reset")

func newBank(t *testing.T, change func(b *bank)) *bank {
	b := &bank{t: t, cfg: validConfig(), charged: map[string]int{}}
	b.store = b.cfg.Store.(*store)
	b.cfg.Keeps = 24 * time.Hour
	b.cfg.Do = func(_ context.Context, c calls.Call) (calls.Result, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.do) > 0 {
			next := b.do[0]
			b.do = b.do[1:]
			if err := next(c.IdempotencyKey); err != nil {
				return nil, err
			}
		} else {
			b.charged[c.IdempotencyKey]++
		}
		return calls.Result("charged " + c.ID), nil
	}
	b.cfg.Done = func(_ context.Context, tx *deduptest.Tx, c calls.Call, r calls.Result) error {
		return tx.Add("done: " + string(r))
	}
	if change != nil {
		change(b)
	}
	var err error
	if b.calls, err = calls.New(b.cfg); err != nil {
		t.Fatal(err)
	}
	return b
}

// find is a Find that knows what was charged.
func (b *bank) find(_ context.Context, c calls.Call) (calls.Result, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	return calls.Result("charged " + c.ID), b.charged[c.IdempotencyKey] > 0, nil
}

func (b *bank) lost(key string) error { b.charged[key]++; return errLost } // it charges, and the answer is lost
func (b *bank) never(string) error    { return errLost }                   // the request does not arrive

func leased(id string, age time.Duration) outboxdriver.Leased {
	return outboxdriver.Leased{Stored: outbox.Stored{
		Message:  outbox.Message{ID: id, Topic: "charge", Payload: []byte("10 EUR")},
		Enqueued: time.Now().Add(-age),
	}}
}

// publish publishes one call, which was enqueued age ago.
func (b *bank) publish(id string, age time.Duration) error {
	b.t.Helper()
	errs := b.calls.PublishLeased(b.t.Context(), []outboxdriver.Leased{leased(id, age)})
	return errs[0]
}

// want fails the test unless the bank has charged, and Done has run, so often for one call.
func (b *bank) want(charged, done int) {
	b.t.Helper()
	total := 0
	for _, n := range b.charged {
		total += n
	}
	if got := b.store.Database().Count("done: charged a"); total != charged || got != done {
		b.t.Errorf("charged %d times, Done %d times; want %d and %d", total, got, charged, done)
	}
}

func (b *bank) record(id string) driver.Call {
	b.t.Helper()
	c, err := b.store.Store.Calls().Call(b.t.Context(), calls.KeyOf("charge", id))
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

// key returns the idempotency key of a call.
func (b *bank) key(id string) (key string) {
	b.t.Helper()
	cfg := b.cfg
	cfg.Find, cfg.Keeps = nil, 24*time.Hour
	cfg.Do = func(_ context.Context, c calls.Call) (calls.Result, error) {
		key = c.IdempotencyKey
		return nil, calls.RetryAfter(errLost, 0)
	}
	cfg.Store = &store{Store: deduptest.NewStore()}
	c, err := calls.New(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	c.PublishLeased(b.t.Context(), []outboxdriver.Leased{leased(id, 0)})
	return key
}

func inDoubt(err error) bool { return errors.As(err, new(*outbox.InDoubtError)) }

func TestACallIsMadeAndSettledOnce(t *testing.T) {
	b := newBank(t, nil)
	for range 3 {
		if err := b.publish("a", 0); err != nil {
			t.Fatal(err)
		}
	}
	b.want(1, 1)
	if got := b.record("a"); !got.Settled || got.Token != 0 {
		t.Errorf("the record: %+v", got)
	}
	if err := b.calls.PublishLeased(t.Context(), []outboxdriver.Leased{{Stored: outbox.Stored{
		Message: outbox.Message{ID: "a", Topic: "charge", Payload: []byte("99 EUR")}, Enqueued: time.Now(),
	}}})[0]; !errors.Is(err, calls.ErrMismatch) || !outbox.IsPermanent(err) {
		t.Errorf("the ID of another call: %v", err)
	}
	b.want(1, 1)
}

func TestALostAnswerIsTriedAgainWithTheSameKey(t *testing.T) {
	b := newBank(t, nil)
	b.do = append(b.do, b.never, func(key string) error {
		if b.charged[key]++; !b.record("a").Last.After(b.record("a").First) {
			t.Error("the second try is not recorded before it begins")
		}
		return errLost
	}, func(key string) error { // a repeat, which the bank recognizes
		if b.charged[key] != 1 {
			t.Error("another idempotency key")
		}
		return nil
	})
	for range 2 {
		if err := b.publish("a", 0); !inDoubt(err) || outbox.IsPermanent(err) || !errors.Is(err, errLost) {
			t.Fatalf("an answer was lost: %v, want an error that counts and says that it is in doubt", err)
		}
	}
	if got := b.record("a"); got.Unanswered != 2 {
		t.Errorf("the record: %+v", got)
	}
	if err := b.publish("a", 0); err != nil {
		t.Fatal(err)
	}
	b.want(1, 1)
}

// An error in doubt says until when a request may be under way: before that time nobody can know that the call has not
// happened.
func TestAnErrorInDoubtNamesTheTime(t *testing.T) {
	until := regexp.MustCompile(`may be under way until (\S+Z)`)
	b := newBank(t, nil)
	b.do = append(b.do, b.lost)
	for _, age := range []time.Duration{23 * time.Hour, 25 * time.Hour} {
		err := b.publish("a", age)
		named := until.FindStringSubmatch(fmt.Sprint(err))
		if !inDoubt(err) || named == nil {
			t.Fatalf("%v: %v names no time", age, err)
		}
		at, parseErr := time.Parse(time.RFC3339, named[1])
		over := b.record("a").Until.Add(calls.DefaultSettles)
		if parseErr != nil || at.Before(over) || at.After(over.Add(time.Minute)) {
			t.Errorf("%v: %v names %v, want %v or a little later", age, err, at, over)
		}
	}
}

func TestAnOldKeyIsNotBelieved(t *testing.T) {
	t.Run("without Find", func(t *testing.T) {
		b := newBank(t, nil)
		b.do = append(b.do, b.lost)
		if err := b.publish("a", 23*time.Hour); !inDoubt(err) {
			t.Fatal(err)
		}
		err := b.publish("a", 25*time.Hour)
		if !inDoubt(err) || !outbox.IsPermanent(err) || !strings.Contains(err.Error(), "txonce outbox answer") {
			t.Errorf("%v, want it parked in doubt", err)
		}
		b.want(1, 0)
	})
	t.Run("with Find", func(t *testing.T) {
		for name, fate := range map[string]func(b *bank) func(string) error{
			"it has happened":     func(b *bank) func(string) error { return b.lost },
			"it has not happened": func(b *bank) func(string) error { return b.never },
		} {
			t.Run(name, func(t *testing.T) {
				b := newBank(t, func(b *bank) { b.cfg.Find, b.cfg.Settles, b.cfg.Timeout = b.find, time.Millisecond, time.Second })
				b.do = append(b.do, fate(b))
				if err := b.publish("a", 23*time.Hour); !inDoubt(err) {
					t.Fatal(err)
				}
				var early *outboxdriver.DeferError
				if err := b.publish("a", 25*time.Hour); !errors.As(err, &early) || !inDoubt(err) || early.After <= 0 || b.asked != 0 {
					t.Fatalf("a request may be under way: %v, and Find was asked %d times", err, b.asked)
				}
				<-time.After(early.After + 2*time.Millisecond)
				if err := b.publish("a", 25*time.Hour); err != nil || b.asked != 1 {
					t.Fatalf("%v, and Find was asked %d times", err, b.asked)
				}
				b.want(1, 1)
			})
		}
	})
}

func TestARefusal(t *testing.T) {
	refuse := func(string) error { return outbox.Permanent(errors.New("card declined")) }
	t.Run("of the first try is definite, and parked", func(t *testing.T) {
		b := newBank(t, nil)
		b.do = append(b.do, refuse)
		if err := b.publish("a", 0); !outbox.IsPermanent(err) || inDoubt(err) || !strings.Contains(err.Error(), "card declined") {
			t.Errorf("%v", err)
		}
		if got := b.record("a"); got.Token != 0 || got.Settled {
			t.Errorf("the record: %+v", got)
		}
		if err := b.publish("a", 0); err != nil { // a person unparks it: the card is valid now
			t.Fatal(err)
		}
		b.want(1, 1)
	})
	t.Run("is settled by Failed", func(t *testing.T) {
		b := newBank(t, func(b *bank) {
			b.cfg.Failed = func(_ context.Context, tx *deduptest.Tx, _ calls.Call, err error) error { return tx.Add(err.Error()) }
		})
		b.do = append(b.do, refuse)
		for range 2 {
			if err := b.publish("a", 0); err != nil {
				t.Fatal(err)
			}
		}
		b.want(0, 0)
		if n := b.store.Database().Count("card declined"); n != 1 {
			t.Errorf("Failed ran %d times", n)
		}
	})
	t.Run("after a lost answer proves nothing", func(t *testing.T) {
		b := newBank(t, nil)
		b.do = append(b.do, b.lost, refuse)
		if err := b.publish("a", 0); !inDoubt(err) {
			t.Fatal(err)
		}
		if err := b.publish("a", 0); !inDoubt(err) || !outbox.IsPermanent(err) {
			t.Errorf("%v, want it parked in doubt", err)
		}
		b.want(1, 0)
	})
	t.Run("after a lost answer, Find tells", func(t *testing.T) {
		b := newBank(t, func(b *bank) { b.cfg.Find, b.cfg.Settles, b.cfg.Timeout = b.find, time.Millisecond, time.Second })
		b.do = append(b.do, b.lost, refuse, refuse)
		if err := b.publish("a", 0); !inDoubt(err) {
			t.Fatal(err)
		}
		var early *outboxdriver.DeferError
		if err := b.publish("a", 0); !errors.As(err, &early) || b.asked != 0 {
			t.Fatalf("%v, and Find was asked %d times", err, b.asked)
		}
		<-time.After(early.After + 2*time.Millisecond)
		if err := b.publish("a", 0); err != nil {
			t.Fatal(err)
		}
		b.want(1, 1)
	})
}

func TestTooManyRequestsAreNoTry(t *testing.T) {
	b := newBank(t, func(b *bank) { b.cfg.Keeps = 0 })
	b.do = append(b.do, func(string) error { return calls.RetryAfter(errors.New("429"), 7*time.Second) })
	var unavailable *outbox.UnavailableError
	if err := b.publish("a", 0); !errors.As(err, &unavailable) || unavailable.After != 7*time.Second || inDoubt(err) {
		t.Errorf("%v", err)
	}
	if err := b.publish("a", 0); err != nil {
		t.Errorf("the next try: %v", err)
	}
	b.want(1, 1)
}

// What is known of a call that has happened is not lost when Done fails.
func TestDoneRunsAgainWithoutAnotherCall(t *testing.T) {
	failures := []error{errors.New("constraint"), outbox.Permanent(errors.New("no account"))}
	b := newBank(t, func(b *bank) {
		b.cfg.Keeps = 0
		done := b.cfg.Done
		b.cfg.Done = func(ctx context.Context, tx *deduptest.Tx, c calls.Call, r calls.Result) error {
			if len(failures) > 0 {
				err := failures[0]
				failures = failures[1:]
				return err
			}
			return done(ctx, tx, c, r)
		}
	})
	for i := range 2 {
		if err := b.publish("a", 0); !errors.As(err, new(*outbox.HappenedError)) || outbox.IsPermanent(err) != (i == 1) {
			t.Errorf("Done fails: %v", err)
		}
	}
	if err := b.publish("a", 40*24*time.Hour); err != nil {
		t.Error(err)
	}
	b.want(1, 1)
}

// A deadlock is no reason to forget that the call has happened.
func TestDoneRunsAgainWithoutAnotherCallAfterTheDatabaseFailed(t *testing.T) {
	failures := 1
	b := newBank(t, func(b *bank) {
		b.cfg.Keeps = 0
		done := b.cfg.Done
		b.cfg.Done = func(ctx context.Context, tx *deduptest.Tx, c calls.Call, r calls.Result) error {
			if failures--; failures >= 0 {
				return deduptest.ErrDeadlock
			}
			return done(ctx, tx, c, r)
		}
	})
	if err := b.publish("a", 0); !errors.As(err, new(*outboxdriver.DeferError)) || !errors.As(err, new(*outbox.HappenedError)) {
		t.Errorf("Done fails: %v", err)
	}
	if err := b.publish("a", 0); err != nil {
		t.Error(err)
	}
	b.want(1, 1)
	if got := b.record("a"); !got.Settled || got.Token != 0 {
		t.Errorf("the record: %+v", got)
	}
}

// COMMIT has arrived, and its answer was lost.
func TestASettledCallLeavesNoRecord(t *testing.T) {
	b := newBank(t, nil)
	b.store.commits.Store(&errLost)
	if err := b.publish("a", 0); !errors.As(err, new(*outbox.HappenedError)) {
		t.Errorf("%v", err)
	}
	if got := b.record("a"); !got.Settled || got.Token != 0 {
		t.Errorf("the record: %+v", got)
	}
}

// A failover may take the record of a try away, and what the handler has committed.
func TestAfterAFailoverFindIsAskedFirst(t *testing.T) {
	b := newBank(t, func(b *bank) {
		b.cfg.Keeps, b.cfg.Find, b.cfg.Settles, b.cfg.Timeout = 0, b.find, 50*time.Millisecond, 100*time.Millisecond
	})
	snapshot := b.store.Database().Snapshot()
	b.do = append(b.do, b.lost)
	if err := b.publish("a", 0); !inDoubt(err) || b.asked != 1 {
		t.Fatalf("%v, and Find was asked %d times", err, b.asked)
	}
	b.store.Database().Promote(snapshot)
	// The handler runs again, and enqueues the call anew.
	var early *outboxdriver.DeferError
	if err := b.publish("a", 0); !errors.As(err, &early) || b.asked != 1 {
		t.Fatalf("a request may be under way whose record was lost: %v, and Find was asked %d times", err, b.asked)
	}
	<-time.After(early.After + 2*time.Millisecond)
	if err := b.publish("a", 0); err != nil || b.asked != 2 {
		t.Fatalf("%v, and Find was asked %d times", err, b.asked)
	}
	b.want(1, 1)
}

// The record of the try was committed, and the answer was lost. The call was not made.
func TestATryThatWasNotMadeIsTakenBack(t *testing.T) {
	b := newBank(t, func(b *bank) {
		b.cfg.Keeps = 0
		b.store.keep = func(k driver.CallKeeper[*deduptest.Tx]) driver.CallKeeper[*deduptest.Tx] { return &deafKeeper{k, 1} }
	})
	if err := b.publish("a", 0); !errors.As(err, new(*outbox.UnavailableError)) {
		t.Errorf("%v", err)
	}
	if err := b.publish("a", 0); err != nil {
		t.Error(err)
	}
	b.want(1, 1)
}

type deafKeeper struct {
	driver.CallKeeper[*deduptest.Tx]
	left int
}

func (k *deafKeeper) BeginTry(ctx context.Context, key dedup.Key, seen driver.Call, try driver.Try) (bool, error) {
	began, err := k.CallKeeper.BeginTry(ctx, key, seen, try)
	if k.left--; k.left >= 0 && err == nil {
		return false, deduptest.ErrDown
	}
	return began, err
}

// The keys of a consumer are not those of calls.
func TestAConsumerOfAnotherServiceHasTheName(t *testing.T) {
	b := newBank(t, nil)
	if err := b.store.RegisterSources(t.Context(), "charge", []string{"sqs queue charges"}); err != nil {
		t.Fatal(err)
	}
	if err := b.publish("a", 0); !errors.Is(err, dedup.ErrNameTaken) {
		t.Errorf("%v", err)
	}
	b.want(0, 0)
}

func TestWhatAPersonSays(t *testing.T) {
	b := newBank(t, func(b *bank) { b.cfg.Keeps = 0 })
	b.do = append(b.do, b.never)
	_ = b.publish("a", 0)
	if err := b.publish("a", 0); !outbox.IsPermanent(err) || !inDoubt(err) {
		t.Fatal(err)
	}
	say := func(happened bool, result string) {
		t.Helper()
		recorded, err := b.store.Store.Calls().AnswerCall(t.Context(), calls.KeyOf("charge", "a"), driver.AnyToken,
			driver.Answer{Happened: happened, Result: []byte(result), Fingerprint: calls.FingerprintOf([]byte("10 EUR"))})
		if err != nil || !recorded {
			t.Fatal(recorded, err)
		}
	}
	say(false, "")
	b.do = append(b.do, b.lost)
	if err := b.publish("a", 0); !inDoubt(err) || outbox.IsPermanent(err) {
		t.Fatalf("it has not happened, and is tried: %v", err)
	}
	if err := b.publish("a", 0); !outbox.IsPermanent(err) || !inDoubt(err) {
		t.Fatalf("what a person says holds for one try: %v", err)
	}
	say(true, "charged a")
	if err := b.publish("a", 0); err != nil {
		t.Fatal(err)
	}
	b.want(1, 1)
}

// Two relays that both saw that a call was not tried make it once.
func TestARelayThatWasFrozenMakesNoCall(t *testing.T) {
	var frozen func()
	b := newBank(t, func(b *bank) {
		b.cfg.Keeps = 0
		b.store.keep = func(k driver.CallKeeper[*deduptest.Tx]) driver.CallKeeper[*deduptest.Tx] {
			return slowKeeper{k, &frozen}
		}
	})
	frozen = func() { // between reading the record and writing it, another relay makes the call
		if err := b.publish("a", 0); err != nil {
			t.Error(err)
		}
	}
	if err := b.publish("a", 0); !errors.As(err, new(*outboxdriver.DeferError)) {
		t.Errorf("%v", err)
	}
	b.want(1, 1)
	if err := b.publish("a", 0); err != nil {
		t.Error(err)
	}
	b.want(1, 1)
}

type slowKeeper struct {
	driver.CallKeeper[*deduptest.Tx]
	before *func()
}

func (k slowKeeper) BeginTry(ctx context.Context, key dedup.Key, seen driver.Call, try driver.Try) (bool, error) {
	if f := *k.before; f != nil {
		*k.before = nil
		f()
	}
	return k.CallKeeper.BeginTry(ctx, key, seen, try)
}

// The time of a try ends when the record says, also when the process stood still before Do.
func TestATryThatBeganTooLateIsNotMade(t *testing.T) {
	b := newBank(t, func(b *bank) {
		b.cfg.Timeout = 20 * time.Millisecond
		b.store.keep = func(k driver.CallKeeper[*deduptest.Tx]) driver.CallKeeper[*deduptest.Tx] {
			return lateKeeper{k}
		}
	})
	if err := b.publish("a", 0); !errors.Is(err, outboxdriver.ErrNotTried) {
		t.Errorf("%v", err)
	}
	b.want(0, 0)
	if got := b.record("a"); got.Token != 0 {
		t.Errorf("the record: %+v", got)
	}
}

type lateKeeper struct {
	driver.CallKeeper[*deduptest.Tx]
}

func (k lateKeeper) BeginTry(ctx context.Context, key dedup.Key, seen driver.Call, try driver.Try) (bool, error) {
	began, err := k.CallKeeper.BeginTry(ctx, key, seen, try)
	<-time.After(try.Within)
	return began, err
}

func TestCallsRunAtOnceUpToConcurrencyAndNoneTooLate(t *testing.T) {
	var mu sync.Mutex
	running, most := 0, 0
	b := newBank(t, func(b *bank) {
		b.cfg.Concurrency, b.cfg.Timeout = 3, 100*time.Millisecond
		b.cfg.Do = func(ctx context.Context, _ calls.Call) (calls.Result, error) {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			<-time.After(50 * time.Millisecond)
			mu.Lock()
			running--
			mu.Unlock()
			return calls.Result("charged a"), ctx.Err()
		}
	})
	var msgs []outboxdriver.Leased
	for i := range 100 {
		msgs = append(msgs, leased(strings.Repeat("x", i+1), 0))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	made, untried := 0, 0
	for i, err := range b.calls.PublishLeased(ctx, msgs) {
		switch {
		case err == nil:
			made++
		case errors.Is(err, outboxdriver.ErrNotTried):
			if untried++; b.record(msgs[i].ID).Token != 0 {
				t.Error("a call that was not made has a record")
			}
		default:
			t.Error(err)
		}
	}
	if most != 3 || made < 3 || untried == 0 {
		t.Errorf("%d at once, %d made, %d not tried", most, made, untried)
	}
}

func TestACallMayBeEnqueuedForLater(t *testing.T) {
	b := newBank(t, nil)
	due := time.Now().Add(72 * time.Hour)
	err := b.store.InTx(t.Context(), nil, func(tx *deduptest.Tx, _ []dedup.Claim) error {
		return b.calls.Enqueue(t.Context(), tx, calls.Request{ID: "a", OrderingKey: "o", Payload: []byte("10 EUR"), NotBefore: due})
	})
	if err != nil {
		t.Fatal(err)
	}
	m := b.store.enqueued[0]
	if m.Topic != "charge" || m.ID != "a" || m.OrderingKey != "o" || !m.NotBefore.Equal(due) {
		t.Errorf("enqueued %+v", m)
	}
	for name, tt := range map[string]struct {
		due  time.Time
		made bool
	}{"due now": {time.Now(), true}, "due two days ago": {time.Now().Add(-48 * time.Hour), false}} {
		l := leased(name, 72*time.Hour)
		l.Headers = map[string]string{"calls-not-before": tt.due.Format(time.RFC3339Nano)}
		if err := b.calls.PublishLeased(t.Context(), []outboxdriver.Leased{l})[0]; (err == nil) != tt.made {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A later try may succeed although an earlier one, whose process was frozen, is refused.
func TestALateRefusalDoesNotSettleACallThatAnotherRelayMakes(t *testing.T) {
	frozen, refused := make(chan struct{}), make(chan error, 1)
	thaw := make(chan struct{})
	b := newBank(t, func(b *bank) {
		b.cfg.Failed = func(_ context.Context, tx *deduptest.Tx, _ calls.Call, err error) error { return tx.Add(err.Error()) }
		b.cfg.Do = func(_ context.Context, c calls.Call) (calls.Result, error) {
			if c.Attempts == 0 {
				close(frozen)
				<-thaw
				return nil, outbox.Permanent(errors.New("card declined"))
			}
			close(thaw)
			var deferred *outboxdriver.DeferError
			if err := <-refused; !errors.As(err, &deferred) {
				t.Errorf("the refusal of the first relay: %v, want it deferred", err)
			}
			b.charged[c.IdempotencyKey]++
			return calls.Result("charged " + c.ID), nil
		}
	})
	go func() { refused <- b.publish("a", 0) }()
	<-frozen
	again := leased("a", 0)
	again.Attempts = 1
	if err := b.calls.PublishLeased(t.Context(), []outboxdriver.Leased{again})[0]; err != nil {
		t.Fatal(err)
	}
	b.want(1, 1)
	if n := b.store.Database().Count("card declined"); n != 0 {
		t.Errorf("Failed ran %d times for a call that was made", n)
	}
}

// A refusal is not settled beside a try that another relay has begun while it was recorded.
func TestARefusalIsNotSettledBesideAnotherTry(t *testing.T) {
	var others sync.WaitGroup
	made := make(chan struct{})
	b := newBank(t, func(b *bank) {
		b.cfg.Failed = func(_ context.Context, tx *deduptest.Tx, _ calls.Call, err error) error {
			others.Go(func() { _ = b.publish("a", 0) })
			<-made
			return tx.Add(err.Error())
		}
	})
	b.do = append(b.do, func(string) error { return outbox.Permanent(errors.New("card declined")) }, func(key string) error {
		b.charged[key]++
		close(made)
		return nil
	})
	if err := b.publish("a", 0); !errors.As(err, new(*outboxdriver.DeferError)) {
		t.Errorf("the refusal: %v, want it deferred", err)
	}
	others.Wait()
	if err := b.publish("a", 0); err != nil {
		t.Error(err)
	}
	b.want(1, 1)
	if n := b.store.Database().Count("card declined"); n != 0 {
		t.Errorf("Failed ran %d times for a call that was made", n)
	}
}

func TestUsersCodeThatPanics(t *testing.T) {
	b := newBank(t, func(b *bank) {
		b.cfg.Do = func(context.Context, calls.Call) (calls.Result, error) { panic("nil pointer") }
	})
	if err := b.publish("a", 0); !inDoubt(err) || !strings.Contains(err.Error(), "Do panicked: nil pointer") {
		t.Error(err)
	}
	b = newBank(t, func(b *bank) {
		b.cfg.Done = func(context.Context, *deduptest.Tx, calls.Call, calls.Result) error { panic("nil pointer") }
	})
	if err := b.publish("a", 0); !strings.Contains(err.Error(), "Done panicked: nil pointer") {
		t.Error(err)
	}
}

func TestTheStoreIsAway(t *testing.T) {
	b := newBank(t, nil)
	b.store.Database().Stop()
	for range 2 {
		if err := b.publish("a", 0); !errors.As(err, new(*outbox.UnavailableError)) || inDoubt(err) {
			t.Errorf("%v", err)
		}
	}
	b.store.Database().Start()
	if err := b.publish("a", 0); err != nil {
		t.Fatal(err)
	}
	b.want(1, 1)
}

func TestConfigNamesTheFieldAtFault(t *testing.T) {
	for _, tt := range []struct {
		field string
		spoil func(cfg *config)
	}{
		{"Name is required", func(cfg *config) { cfg.Name = "" }},
		{"Name", func(cfg *config) { cfg.Name = strings.Repeat("x", 256) }},
		{"Store is required", func(cfg *config) { cfg.Store = nil }},
		{"Do is required", func(cfg *config) { cfg.Do = nil }},
		{"Done is required", func(cfg *config) { cfg.Done = nil }},
		{"Keeps is -1s", func(cfg *config) { cfg.Keeps = -time.Second }},
		{"Keeps is 4m10s", func(cfg *config) { cfg.Keeps = 250 * time.Second }},
		{"Settles is -1s", func(cfg *config) { cfg.Settles = -time.Second }},
		{"Timeout is -1s", func(cfg *config) { cfg.Timeout = -time.Second }},
		{"Concurrency is -1", func(cfg *config) { cfg.Concurrency = -1 }},
	} {
		cfg := validConfig()
		tt.spoil(&cfg)
		if _, err := calls.New(cfg); err == nil || !strings.HasPrefix(err.Error(), "calls: Config."+tt.field) {
			t.Errorf("New = %v, want it to name Config.%s", err, tt.field)
		}
	}
}

func TestErrorOf(t *testing.T) {
	for _, tt := range []struct {
		status int
		after  string
		want   string // refused, not now, away, unknown or ""
		wait   time.Duration
	}{
		{200, "", "", 0},
		{201, "", "", 0},
		{302, "", "unknown", 0},
		{400, "", "refused", 0},
		{402, "", "refused", 0},
		{408, "", "unknown", 0},
		{409, "", "unknown", 0},
		{425, "", "unknown", 0},
		{429, "3", "not now", 3 * time.Second},
		{429, "", "not now", 0},
		{429, "9999999", "not now", 10 * time.Minute},
		{429, "soon", "not now", 0},
		{429, "Fri, 01 Jan 2100 00:00:00 GMT", "not now", 10 * time.Minute},
		{500, "3", "unknown", 0},
		{503, "", "unknown", 0},
		{503, "3", "away", 3 * time.Second},
		{401, "", "not now", 0},
		{407, "", "not now", 0},
	} {
		b := newBank(t, func(b *bank) {
			b.cfg.Do = func(context.Context, calls.Call) (calls.Result, error) {
				return nil, calls.ErrorOf(&http.Response{StatusCode: tt.status, Header: http.Header{"Retry-After": {tt.after}}})
			}
		})
		err, got, wait := b.publish("a", 0), "", time.Duration(0)
		var unavailable *outbox.UnavailableError
		away := errors.As(err, &unavailable)
		if away {
			wait = unavailable.After
		}
		switch {
		case err == nil:
		case away && inDoubt(err):
			got = "away"
		case away:
			got = "not now"
		case outbox.IsPermanent(err):
			got = "refused"
		case inDoubt(err):
			got = "unknown"
		}
		if got != tt.want || wait != tt.wait {
			t.Errorf("%d, Retry-After %q: %q after %v (%v), want %q after %v", tt.status, tt.after, got, wait, err, tt.want, tt.wait)
		}
	}
}

// http.Client turns a POST into a GET when it follows a redirect.
func TestErrorOfAfterARedirect(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/found", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/again", http.StatusFound) })
	mux.HandleFunc("/again", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/ok", http.StatusTemporaryRedirect) })
	mux.HandleFunc("/ok", func(http.ResponseWriter, *http.Request) {})
	server := httptest.NewServer(mux)
	defer server.Close()
	for _, tt := range []struct {
		method, path string
		happened     bool
	}{
		{http.MethodPost, "/ok", true},
		{http.MethodPost, "/again", true},
		{http.MethodPost, "/found", false},
		{http.MethodGet, "/found", true},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tt.method, server.URL+tt.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if err := calls.ErrorOf(response); (err == nil) != tt.happened || err != nil && outbox.IsPermanent(err) {
			t.Errorf("%s %s: %v", tt.method, tt.path, err)
		}
	}
}

// The key is frozen: with another one, each call that is repeated after an upgrade would happen again.
func TestTheIdempotencyKeyIsFrozen(t *testing.T) {
	var got []string
	b := newBank(t, func(b *bank) {
		b.cfg.Do = func(_ context.Context, c calls.Call) (calls.Result, error) {
			got = append(got, c.IdempotencyKey)
			return nil, nil
		}
	})
	_, _ = b.publish("a", 0), b.publish("b", 0)
	if len(got) != 2 || got[0] == got[1] || got[0] != "5050a55b-e852-839d-ba5f-d81ccc22f78a" {
		t.Errorf("%q", got)
	}
}
