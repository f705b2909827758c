package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

var errPoison = consumer.Permanent(errors.New("poison"))

var errMalformed = errors.New("malformed")

// malformed returns a message that its Subscriber could not read.
func malformed(id string) *consumer.Message {
	m := msg(id, "a")
	m.Malformed = errMalformed
	return m
}

// poison is a handler that fails with a Permanent error for one payload.
func poison(ctx context.Context, tx tx, m *consumer.Message) error {
	if string(m.Payload) == "poison" {
		return errPoison
	}
	return effect(ctx, tx, m)
}

func TestWhatIsParkedAndWhy(t *testing.T) {
	now := time.Now()
	bad := func(m *consumer.Message) bool { return m.ID == "1" }
	jsonKey := func(cfg *config) { cfg.Key = consumer.JSONKey("id") }
	for _, tc := range []struct {
		name   string
		cfg    func(*config)
		before []*consumer.Message
		msg    *consumer.Message
		reason consumer.Reason
		key    string
		cause  error
		says   string
	}{
		{name: "poison", msg: msg("1", "poison"), reason: consumer.ReasonPoison, key: "1", cause: errPoison},
		{name: "mismatch", before: []*consumer.Message{msg("1", "a")}, msg: msg("1", "b"), reason: consumer.ReasonMismatch, key: "1", cause: dedup.ErrMismatch},
		{name: "no key", msg: msg("", "a"), reason: consumer.ReasonNoKey, cause: dedup.ErrNoKey},
		{name: "key of invalid UTF-8", msg: msg("\xff", "a"), reason: consumer.ReasonNoKey, cause: dedup.ErrBadKey},
		{name: "oversize key", msg: msg(strings.Repeat("x", dedup.MaxID+1), "a"), reason: consumer.ReasonNoKey, cause: dedup.ErrBadKey},
		{name: "undecodable", cfg: jsonKey, msg: msg("", "{"), reason: consumer.ReasonNoKey, cause: dedup.ErrNoKey},
		{name: "malformed", msg: malformed("1"), reason: consumer.ReasonPoison, key: "1", cause: errMalformed},
		{name: "key function fails", cfg: func(cfg *config) {
			cfg.Key = func(m *consumer.Message) (string, error) {
				if bad(m) {
					return "", errPoison
				}
				return m.ID, nil
			}
		}, msg: msg("1", "a"), reason: consumer.ReasonNoKey, cause: errPoison},
		{name: "key function panics", cfg: func(cfg *config) {
			cfg.Key = func(m *consumer.Message) (string, error) {
				if bad(m) {
					panic(errPoison)
				}
				return m.ID, nil
			}
		}, msg: msg("1", "a"), reason: consumer.ReasonNoKey, cause: errPoison},
		{name: "key function ends its goroutine", cfg: func(cfg *config) {
			cfg.Key = func(m *consumer.Message) (string, error) {
				if bad(m) {
					runtime.Goexit()
				}
				return m.ID, nil
			}
		}, msg: msg("1", "a"), reason: consumer.ReasonNoKey, says: "Config.Key ended its goroutine"},
		{name: "tenant ends its goroutine", cfg: func(cfg *config) {
			cfg.Tenant = func(m *consumer.Message) (string, error) {
				if bad(m) {
					runtime.Goexit()
				}
				return "acme", nil
			}
		}, msg: msg("1", "a"), reason: consumer.ReasonNoKey, says: "Config.Tenant ended its goroutine"},
		{name: "fingerprint ends its goroutine", cfg: func(cfg *config) {
			cfg.Fingerprint = func(m *consumer.Message) (dedup.Fingerprint, error) {
				if bad(m) {
					runtime.Goexit()
				}
				return dedup.FingerprintOf(m.Payload), nil
			}
		}, msg: msg("1", "a"), reason: consumer.ReasonPoison, key: "1", says: "Config.Fingerprint ended its goroutine"},
		{name: "tenant fails", cfg: func(cfg *config) { cfg.Tenant = consumer.HeaderKey("tenant") }, msg: msg("1", "a"), reason: consumer.ReasonNoKey, cause: dedup.ErrNoKey},
		{name: "tenant of invalid UTF-8", cfg: func(cfg *config) {
			cfg.Tenant = func(m *consumer.Message) (string, error) {
				if bad(m) {
					return "\xff", nil
				}
				return "acme", nil
			}
		}, msg: msg("1", "a"), reason: consumer.ReasonNoKey, cause: dedup.ErrBadKey},
		{name: "fingerprint fails", cfg: func(cfg *config) { cfg.Fingerprint = consumer.JSONFields("id") }, msg: msg("1", "{"), reason: consumer.ReasonPoison, key: "1"},
		{name: "time ahead", msg: &consumer.Message{ID: "1", Time: now.Add(48 * time.Hour)}, reason: consumer.ReasonPoison, key: "1", cause: dedup.ErrFuture},
		{name: "time of the year 292277026596", msg: &consumer.Message{ID: "1", Time: time.Unix(1<<62, 0)}, reason: consumer.ReasonPoison, key: "1", cause: dedup.ErrFuture},
		{
			name: "unprovable", before: []*consumer.Message{{ID: "old", Time: now.Add(-40 * 24 * time.Hour)}},
			msg: &consumer.Message{ID: "1", Time: now.Add(-30 * 24 * time.Hour)}, reason: consumer.ReasonUnprovable, key: "1", cause: dedup.ErrUnprovable,
		},
		{
			name: "untimed", cfg: func(cfg *config) { cfg.Untimed = consumer.ParkUntimed }, before: []*consumer.Message{{ID: "old"}},
			msg: &consumer.Message{ID: "1"}, reason: consumer.ReasonUnprovable, key: "1", cause: dedup.ErrUnprovable,
		},
		{
			name: "suspected replay", before: []*consumer.Message{{ID: "1", Aliases: []string{"sig"}}},
			msg: &consumer.Message{ID: "2", Aliases: []string{"new", "sig"}}, reason: consumer.ReasonReplay, key: "2", cause: consumer.ErrSuspectedReplay,
		},
		{name: "bad further key", msg: &consumer.Message{ID: "1", Aliases: []string{""}}, reason: consumer.ReasonPoison, key: "1", cause: dedup.ErrNoKey},
	} {
		for _, batched := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/batched %v", tc.name, batched), func(t *testing.T) {
				db := deduptest.NewDatabase()
				store := consumertest.NewStoreOn(db)
				var parked []consumer.Event
				cfg := config{Store: store, Handle: poison, Trace: &consumer.Trace{Parked: func(_ context.Context, e consumer.Event) { parked = append(parked, e) }}}
				if tc.cfg != nil {
					tc.cfg(&cfg)
				}
				c := newConsumer(t, cfg)
				for _, m := range tc.before {
					process(t, c, m)
				}
				if tc.reason == consumer.ReasonUnprovable { // forget the claims
					db.Age(dedup.DefaultWindow + time.Hour)
					if swept, err := store.Purge(t.Context(), dedup.Sweep{}); err != nil || swept.Keys != len(tc.before) {
						t.Fatalf("purge: %+v, %v", swept, err)
					}
				}
				for range 2 { // parked again when delivered again
					if batched {
						good, other := msg("good", `{"id":"good"}`), msg("other", `{"id":"other"}`)
						for _, m := range []*consumer.Message{good, other} {
							m.Time, m.Headers = now, map[string]string{"tenant": "acme"}
						}
						for _, err := range c.ProcessBatch(t.Context(), []*consumer.Message{good, tc.msg, other}) {
							if err != nil {
								t.Error(err)
							}
						}
						wantCount(t, db, "good", 1)
						wantCount(t, db, "other", 1)
					} else {
						process(t, c, tc.msg)
					}
				}
				found := letters(t, c)
				if len(found) != 1 || len(parked) != 2 {
					t.Fatalf("%d letters, %d told; want 1 and 2", len(found), len(parked))
				}
				l := found[0]
				if l.Reason != tc.reason || l.Record.Key.ID != tc.key || l.Times != 2 || l.Settled || parked[0].Reason != tc.reason {
					t.Errorf("letter: reason %q, key %q, parked %d times, settled %v; want %q, %q, 2, false", l.Reason, l.Record.Key.ID, l.Times, l.Settled, tc.reason, tc.key)
				}
				if l.Record.Time.Year() > 9999 || !utf8.ValidString(l.Record.Key.Tenant) {
					t.Errorf("no database can keep %+v", l.Record)
				}
				if tc.cause != nil && !errors.Is(parked[0].Err, tc.cause) || !strings.Contains(l.Cause, tc.says) || l.Cause != parked[1].Err.Error() {
					t.Errorf("cause %q, told %v; want %v %s", l.Cause, parked[0].Err, tc.cause, tc.says)
				}
				wantCount(t, db, "2", 0)
				if tc.key != "" && tc.reason != consumer.ReasonMismatch {
					if _, claimed, _ := store.Lookup(t.Context(), l.Record.Key); claimed {
						t.Error("a parked message leaves a claim behind")
					}
				}
			})
		}
	}
}

func TestALetterKeepsTheMessage(t *testing.T) {
	store := consumertest.NewStore()
	c := newConsumer(t, config{
		Store: store, Handle: poison, MaxAttempts: 7, Window: 48 * time.Hour,
		Tenant: consumer.HeaderKey("tenant"),
	})
	m := &consumer.Message{
		ID: "1", Topic: "orders", Key: "k", Position: "orders/3/1042", Payload: []byte("poison"),
		Headers: map[string]string{"tenant": "acme", "bytes": "\x00\xff"}, Time: time.Now().Add(-time.Minute), Attempt: 2, Raw: t,
	}
	process(t, c, m)
	want := *m
	want.Raw = nil
	l := letters(t, c)[0]
	if diff := cmp.Diff(want, l.Message); diff != "" {
		t.Error(diff)
	}
	wantRec := dedup.Record{Key: dedup.Key{Consumer: "billing", Tenant: "acme", ID: "1"}, Fingerprint: dedup.FingerprintOf(m.Payload), Time: m.Time, Window: 48 * time.Hour}
	if diff := cmp.Diff(wantRec, l.Record); diff != "" {
		t.Error(diff)
	}
}

// The IDs of letters must be the same in every version. If they change, letters are lost or doubled.
func TestLetterIDIsFrozen(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("x", 3600))
	for _, tc := range []struct {
		name string
		msg  consumer.Message
		want string
	}{
		{"key", consumer.Message{ID: "1", Payload: []byte("poison"), Position: "p", Time: at}, "21a456f75f2254178912a781ba5456bf"},
		{"tenant", consumer.Message{ID: "1", Payload: []byte("poison"), Tenant: "t"}, "c1f4b9f1068a5cbeb84ddbcb7943561d"},
		{"fields do not run together", consumer.Message{ID: "t1", Payload: []byte("poison")}, "76e996cca90ad4162f6da5a867160ff2"},
		{"position", consumer.Message{Payload: []byte("poison"), Topic: "t", Position: "p", Time: at}, "20210f68172327fdbe9d02f1a248ee41"},
		{"position without time", consumer.Message{Payload: []byte("poison"), Topic: "t", Position: "p"}, "5e08e9e0d0da8471d25a46727cb2463f"},
		{"nothing", consumer.Message{}, "07c133b126fad20f9229f20249208394"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newConsumer(t, config{Store: consumertest.NewStore(), Handle: poison})
			process(t, c, &tc.msg)
			if got := letters(t, c)[0].ID.String(); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestTwoLettersAreTwo(t *testing.T) {
	for _, tc := range []struct {
		name string
		msgs []consumer.Message
		want int
	}{
		{"equal bytes under two keys", []consumer.Message{{ID: "1", Payload: []byte("poison")}, {ID: "2", Payload: []byte("poison")}}, 2},
		{"two contents of one key", []consumer.Message{{ID: "1", Payload: []byte("a")}, {ID: "1", Payload: []byte("b")}, {ID: "1", Payload: []byte("c")}}, 2},
		{"equal bytes at two positions", []consumer.Message{{Position: "0/1"}, {Position: "0/2"}}, 2},
		{"one position after the topic was made again", []consumer.Message{{Position: "0/1", Time: time.Unix(1, 0)}, {Position: "0/1", Time: time.Unix(2, 0)}}, 2},
		{"two contents without position", []consumer.Message{{Payload: []byte("a")}, {Payload: []byte("b")}}, 2},
		{"one delivered twice", []consumer.Message{{ID: "1", Payload: []byte("poison"), Position: "0/1"}, {ID: "1", Payload: []byte("poison"), Position: "0/9"}}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newConsumer(t, config{Store: consumertest.NewStore(), Handle: poison})
			for _, m := range tc.msgs {
				process(t, c, &m)
			}
			if n := len(letters(t, c)); n != tc.want {
				t.Errorf("%d letters, want %d", n, tc.want)
			}
		})
	}
}

func TestMismatchIsDuplicate(t *testing.T) {
	store, traced := &counted{Store: consumertest.NewStore()}, &events{}
	c := newConsumer(t, config{Store: store, OnMismatch: consumer.MismatchIsDuplicate, Trace: traced.trace()})
	process(t, c, msg("1", "a"))
	process(t, c, msg("1", "b"))
	wantCount(t, store.Database(), "1", 1)
	if n := len(letters(t, c)); n != 0 || traced.count("mismatch") != 1 || store.n != 2 {
		t.Errorf("%d letters, %d transactions, %v", n, store.n, traced.take())
	}
}

func TestWhatTheMessageSaysComesFirst(t *testing.T) {
	store := consumertest.NewStore()
	c := newConsumer(t, config{
		Store:  store,
		Tenant: func(*consumer.Message) (string, error) { return "", errors.New("not asked") },
	})
	f := dedup.FingerprintOf([]byte("stable"))
	for _, payload := range []string{"a", "b"} { // other bytes, the same fingerprint
		m := msg("1", payload)
		m.Tenant, m.Fingerprint = "acme", &f
		process(t, c, m)
	}
	wantCount(t, store.Database(), "1", 1)
	claim, found, _ := store.Lookup(t.Context(), dedup.Key{Consumer: "billing", Tenant: "acme", ID: "1"})
	if !found || claim.Fingerprint != f || len(letters(t, c)) != 0 {
		t.Errorf("claim %+v, %v; %d letters", claim, found, len(letters(t, c)))
	}
}

func TestFurtherKeys(t *testing.T) {
	store := consumertest.NewStore()
	c := newConsumer(t, config{Store: store})
	claimed := func(id string) bool {
		_, found, _ := store.Lookup(t.Context(), dedup.Key{Consumer: "billing", ID: id})
		return found
	}
	process(t, c, msg("1", ""))
	again := msg("1", "")
	again.Aliases = []string{"x"} // a duplicate with an alias
	process(t, c, again)
	if claimed("x") {
		t.Error("a duplicate has claimed a further key")
	}
	first := msg("2", "")
	first.Aliases = []string{"x", "x", "2", "y"} // repeated, and its own
	for range 2 {
		process(t, c, first)
	}
	wantCount(t, store.Database(), "2", 1)
	if !claimed("x") || !claimed("y") || len(letters(t, c)) != 0 {
		t.Errorf("x claimed %v, y claimed %v, %d letters", claimed("x"), claimed("y"), len(letters(t, c)))
	}
	third, fourth := msg("3", ""), msg("4", "") // in one batch, one after the other
	third.Aliases, fourth.Aliases = []string{"z"}, []string{"z"}
	if errs := c.ProcessBatch(t.Context(), []*consumer.Message{third, fourth}); !slices.Equal(errs, []error{nil, nil}) {
		t.Error(errs)
	}
	wantCount(t, store.Database(), "3", 1)
	wantCount(t, store.Database(), "4", 0)
	if found := letters(t, c); len(found) != 1 || found[0].Reason != consumer.ReasonReplay {
		t.Errorf("letters: %v", found)
	}
	if claimed("4") {
		t.Error("a suspected replay has left a claim behind")
	}
}

func TestWithoutAParkingLotMessagesAreRejected(t *testing.T) {
	log := &logs{}
	for _, m := range []*consumer.Message{msg("1", "poison"), msg("", "x")} {
		c := newConsumer(t, config{Store: struct{ dedup.Store[tx] }{consumertest.NewStore()}, Handle: poison, Logger: log.logger()})
		err := c.Process(t.Context(), m)
		if _, retry := errors.AsType[*consumer.RetryError](err); err == nil || retry || !consumer.IsPermanent(err) {
			t.Errorf("err = %v, want a permanent one", err)
		}
		if _, err := c.DeadLetters(t.Context(), consumer.DeadLetterFilter{}); err == nil {
			t.Error("DeadLetters of a store without a parking lot: no error")
		}
	}
	if n := log.lines("rejected: the store"); n != 2 {
		t.Errorf("%d lines, want one for each message", n)
	}
}

// If parking fails, the message is neither rejected nor lost.
func TestParkingThatFailsIsRetriedWithoutBlame(t *testing.T) {
	for _, fail := range []error{errFault, dedup.ErrInFlight, errors.New("anything")} {
		t.Run(fail.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &faulty{Store: consumertest.NewStore()}
				n := 0
				store.before = func() error {
					if n++; n%2 == 0 && n < 10 { // each second transaction is for parking
						return fail
					}
					return nil
				}
				c := newConsumer(t, config{Store: store, Handle: poison})
				wantRetry(t, c.ProcessBatch(t.Context(), []*consumer.Message{msg("1", "poison")})[0], true)
				process(t, c, msg("1", "poison"))
				if found := letters(t, c); len(found) != 1 || found[0].Message.Attempt != 1 {
					t.Errorf("letters: %+v", found)
				}
			})
		})
	}
}

// The claim of the parking transaction notices what changed after the attempt.
func TestParkingLooksAgain(t *testing.T) {
	key := dedup.Key{Consumer: "billing", ID: "1"}
	for _, tc := range []struct {
		name    string
		before  []*consumer.Message
		msg     *consumer.Message
		meddle  func(ctx context.Context, s *consumertest.Store, tx tx) error // right before the message is parked
		effects int
		reason  consumer.Reason // empty: not parked
	}{
		{
			"the other content is forgotten",
			[]*consumer.Message{msg("1", "a")},
			msg("1", "b"),
			func(ctx context.Context, s *consumertest.Store, tx tx) error { return s.Forget(ctx, tx, key) }, 2, "",
		},
		{
			"its key is claimed for other content", nil, msg("1", "poison"),
			func(ctx context.Context, s *consumertest.Store, tx tx) error {
				_, err := s.Claim(ctx, tx, []dedup.Record{{Key: key, Fingerprint: dedup.FingerprintOf([]byte("other"))}})
				return err
			}, 0, consumer.ReasonMismatch,
		},
		{
			"a copy of it succeeds", nil, msg("1", "poison"),
			func(ctx context.Context, s *consumertest.Store, tx tx) error {
				_, err := s.Claim(ctx, tx, []dedup.Record{{Key: key, Fingerprint: dedup.FingerprintOf([]byte("poison"))}})
				return err
			}, 0, "",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			store := &faulty{Store: consumertest.NewStore()}
			c := newConsumer(t, config{Store: store, Handle: poison, Backoff: noBackoff})
			for _, m := range tc.before {
				process(t, c, m)
			}
			n := 0
			store.before = func() error {
				if n++; n != 2 {
					return nil
				}
				return store.Store.InTx(t.Context(), nil, func(tx tx, _ []dedup.Claim) error { return tc.meddle(t.Context(), store.Store, tx) })
			}
			process(t, c, tc.msg)
			wantCount(t, store.Database(), "1", tc.effects)
			found := letters(t, c)
			switch {
			case tc.reason == "" && len(found) != 0:
				t.Errorf("parked: %+v", found)
			case tc.reason != "" && (len(found) != 1 || found[0].Reason != tc.reason || !strings.Contains(found[0].Cause, "poison")):
				t.Errorf("letters: %+v", found)
			}
		})
	}
}

// A message that cannot be decoded, but has the key of a processed message, is not a duplicate.
func TestWhatHasNoFingerprintIsNoDuplicate(t *testing.T) {
	c := newConsumer(t, config{Store: consumertest.NewStore(), Fingerprint: consumer.JSONFields("amount")})
	process(t, c, msg("1", `{"amount":7}`))
	process(t, c, msg("1", `{"amount":`))
	if found := letters(t, c); len(found) != 1 || found[0].Reason != consumer.ReasonMismatch {
		t.Errorf("letters: %+v", found)
	}
}

// A message whose key cannot be claimed because of a hash collision is parked.
func TestACollisionIsParked(t *testing.T) {
	store := &colliding{consumertest.NewStore()}
	c := newConsumer(t, config{Store: store})
	for _, err := range c.ProcessBatch(t.Context(), []*consumer.Message{msg("0", ""), msg("1", ""), msg("2", "")}) {
		if err != nil {
			t.Error(err)
		}
	}
	if found := letters(t, c); len(found) != 1 || found[0].Record.Key.ID != "1" {
		t.Errorf("letters: %+v", found)
	}
	wantCount(t, store.Database(), "2", 1)
}

// colliding is a store where the hash of key 1 belongs to another key.
type colliding struct{ *consumertest.Store }

func (s *colliding) InTx(ctx context.Context, recs []dedup.Record, fn func(tx, []dedup.Claim) error) error {
	for _, r := range recs {
		if r.Key.ID == "1" {
			return dedup.ErrKeyCollision
		}
	}
	return s.Store.InTx(ctx, recs, fn)
}

func TestParkingThatFailsCostsNothing(t *testing.T) {
	store := &faulty{Store: consumertest.NewStore()}
	n := 0
	store.before = func() error {
		if n++; n == 2 {
			return errFault
		}
		return nil
	}
	c := newConsumer(t, config{Store: store, Handle: poison, ParkLimit: consumer.ParkLimit{Burst: 1, PerMinute: 1}})
	for range 2 {
		if err := c.ProcessBatch(t.Context(), []*consumer.Message{msg("1", "poison")})[0]; errors.Is(err, consumer.ErrParkLimit) {
			t.Error(err)
		}
	}
	if found := letters(t, c); len(found) != 1 {
		t.Errorf("%d letters, want 1", len(found))
	}
}

// Transactions that fail at the same time are one fault, so that a failover does not count as ten faults.
func TestFaultsSideBySideAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers = 10
		inside := make(chan struct{}, workers)
		var worst atomic.Int64
		store := &faulty{Store: consumertest.NewStore()}
		c := newConsumer(t, config{
			Store: store,
			Backoff: func(n int) time.Duration {
				worst.Store(max(worst.Load(), int64(n)))
				return time.Second
			},
			Handle: func(_ context.Context, tx tx, m *consumer.Message) error {
				if len(inside) < workers {
					inside <- struct{}{}
					<-time.After(time.Second)
					return tx.Fail(errFault)
				}
				return tx.Add(m.ID)
			},
		})
		var wg sync.WaitGroup
		for i := range workers {
			wg.Go(func() { process(t, c, msg(fmt.Sprint(i), "")) })
		}
		wg.Wait()
		if worst.Load() != 1 {
			t.Errorf("backed off as after %d faults, want 1", worst.Load())
		}
	})
}

// While the database is away, nothing is parked. One line is logged when the pause begins, and one when it ends.
func TestTheDatabaseIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, traced, log := consumertest.NewStore(), &events{}, &logs{}
		c := newConsumer(t, config{Store: store, Trace: traced.trace(), Logger: log.logger()})
		process(t, c, msg("0", ""))
		store.Database().Stop()
		const away = time.Hour
		time.AfterFunc(away, store.Database().Start)
		start, done := time.Now(), make(chan struct{})
		for i := range 8 {
			go func() {
				process(t, c, msg(fmt.Sprint(1+i%4), ""))
				done <- struct{}{}
			}()
		}
		for range 8 {
			<-done
		}
		if took := time.Since(start); took > away+consumer.DefaultBackoffCap {
			t.Errorf("went on %v after the database came back", took-away)
		}
		for i := range 5 {
			wantCount(t, store.Database(), fmt.Sprint(i), 1)
		}
		if n := len(letters(t, c)); n != 0 {
			t.Errorf("%d letters", n)
		}
		if begins, ends := log.lines("consumer paused"), log.lines("consumer goes on"); begins != 1 || ends != 1 {
			t.Errorf("%d lines when it paused, %d when it went on, want one each", begins, ends)
		}
		if n := traced.count("paused"); n < 100 || n > 20000 {
			t.Errorf("told of %d pauses", n)
		}
	})
}

func TestALoneFaultIsNoPause(t *testing.T) {
	log := &logs{}
	c := newConsumer(t, config{Store: &faulty{Store: consumertest.NewStore(), before: times(1, errFault)}, Logger: log.logger(), Backoff: noBackoff})
	process(t, c, msg("1", ""))
	if n := log.lines("consumer paused") + log.lines("goes on"); n != 0 {
		t.Errorf("%d lines about a pause", n)
	}
}

// A deployment that fails for every message must not park a whole topic.
func TestParkLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, traced, log := consumertest.NewStore(), &events{}, &logs{}
		c := newConsumer(t, config{
			Store: store, Handle: poison, ParkLimit: consumer.ParkLimit{Burst: 10, PerMinute: 6},
			Trace: traced.trace(), Logger: log.logger(),
		})
		var batch []*consumer.Message
		for i := range 30 {
			batch = append(batch, msg(fmt.Sprint(i), "poison"))
		}
		errs := c.ProcessBatch(t.Context(), batch)
		for i, err := range errs {
			if i < 10 != (err == nil) {
				t.Errorf("message %d: %v", i, err)
			}
			if err != nil {
				retry := wantRetry(t, err, true)
				if !errors.Is(err, consumer.ErrParkLimit) || retry.After < 10*time.Second || retry.After > 70*time.Second {
					t.Errorf("message %d: %v after %v, want ErrParkLimit after 10s to 70s", i, err, retry.After)
				}
			}
		}
		if n, told, lines := len(letters(t, c)), traced.count("paused"), log.lines("consumer paused"); n != 10 || told != 20 || lines != 1 {
			t.Errorf("%d letters, told %d times, %d lines; want 10, 20, 1", n, told, lines)
		}
		start := time.Now()
		for _, m := range batch[10:] {
			process(t, c, m)
		}
		if took := time.Since(start); took < 3*time.Minute || took > 5*time.Minute {
			t.Errorf("20 more took %v, want some 200 s", took)
		}
		process(t, c, msg("good", "ok"))
		if n, lines := len(letters(t, c)), log.lines("consumer paused"); n != 30 || lines != 1 {
			t.Errorf("%d letters, %d lines; want 30 and still 1", n, lines)
		}
	})
	t.Run("unlimited", func(t *testing.T) {
		c := newConsumer(t, config{Store: consumertest.NewStore(), Handle: poison, ParkLimit: consumer.ParkLimit{Unlimited: true}})
		for i := range 200 {
			process(t, c, msg(fmt.Sprint(i), "poison"))
		}
		if found, _ := c.DeadLetters(t.Context(), consumer.DeadLetterFilter{Limit: 1000}); len(found) != 200 {
			t.Errorf("%d letters", len(found))
		}
	})
}

func TestOneLineForEachMessageGivenUpOn(t *testing.T) {
	log := &logs{}
	c := newConsumer(t, config{
		Store: consumertest.NewStore(), Backoff: noBackoff, Logger: log.logger(),
		Handle: func(context.Context, tx, *consumer.Message) error { return errors.New("transient, for ever") },
	})
	process(t, c, msg("1", "the secret payload"))
	if n := log.lines(""); n != 2 {
		t.Errorf("%d lines, want one at start and one for the message:\n%s", n, log.buf.String())
	}
	if log.lines("secret") != 0 {
		t.Error("a payload is in the log")
	}
}
