package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/observe"
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
		cause  observe.Cause
		key    string
		err    error
		says   string
	}{
		{name: "poison", msg: msg("1", "poison"), cause: observe.CausePermanent, key: "1", err: errPoison},
		{
			name: "mismatch", before: []*consumer.Message{msg("1", "a")}, msg: msg("1", "b"), cause: observe.CauseMismatch,
			key: "1", err: dedup.ErrMismatch,
		},
		{name: "no key", msg: msg("", "a"), cause: observe.CauseNoKey, err: dedup.ErrNoKey},
		{name: "key of invalid UTF-8", msg: msg("\xff", "a"), cause: observe.CauseNoKey, err: dedup.ErrBadKey},
		{
			name: "oversize key", msg: msg(strings.Repeat("x", dedup.MaxID+1), "a"), cause: observe.CauseNoKey,
			err: dedup.ErrBadKey,
		},
		{name: "undecodable", cfg: jsonKey, msg: msg("", "{"), cause: observe.CauseNoKey, err: dedup.ErrNoKey},
		{
			name: "malformed, so that it has no ID", msg: malformed(""), cause: observe.CauseUndecodable,
			err: errMalformed,
		},
		{name: "malformed", msg: malformed("1"), cause: observe.CauseUndecodable, key: "1", err: errMalformed},
		{name: "key function fails", cfg: func(cfg *config) {
			cfg.Key = func(m *consumer.Message) (string, error) {
				if bad(m) {
					return "", errPoison
				}
				return m.ID, nil
			}
		}, msg: msg("1", "a"), cause: observe.CauseNoKey, err: errPoison},
		{name: "key function panics", cfg: func(cfg *config) {
			cfg.Key = func(m *consumer.Message) (string, error) {
				if bad(m) {
					panic(errPoison)
				}
				return m.ID, nil
			}
		}, msg: msg("1", "a"), cause: observe.CauseNoKey, err: errPoison},
		{name: "key function ends its goroutine", cfg: func(cfg *config) {
			cfg.Key = func(m *consumer.Message) (string, error) {
				if bad(m) {
					runtime.Goexit()
				}
				return m.ID, nil
			}
		}, msg: msg("1", "a"), cause: observe.CauseNoKey, says: "Config.Key ended its goroutine"},
		{name: "tenant ends its goroutine", cfg: func(cfg *config) {
			cfg.Tenant = func(m *consumer.Message) (string, error) {
				if bad(m) {
					runtime.Goexit()
				}
				return "acme", nil
			}
		}, msg: msg("1", "a"), cause: observe.CauseNoKey, says: "Config.Tenant ended its goroutine"},
		{name: "fingerprint ends its goroutine", cfg: func(cfg *config) {
			cfg.Fingerprint = func(m *consumer.Message) (dedup.Fingerprint, error) {
				if bad(m) {
					runtime.Goexit()
				}
				return dedup.FingerprintOf(m.Payload), nil
			}
		}, msg: msg("1", "a"), cause: observe.CauseUndecodable, key: "1", says: "Config.Fingerprint ended its goroutine"},
		{
			name: "tenant fails", cfg: func(cfg *config) { cfg.Tenant = consumer.HeaderKey("tenant") }, msg: msg("1", "a"),
			cause: observe.CauseNoKey, err: dedup.ErrNoKey,
		},
		{name: "tenant of invalid UTF-8", cfg: func(cfg *config) {
			cfg.Tenant = func(m *consumer.Message) (string, error) {
				if bad(m) {
					return "\xff", nil
				}
				return "acme", nil
			}
		}, msg: msg("1", "a"), cause: observe.CauseNoKey, err: dedup.ErrBadKey},
		{
			name: "fingerprint fails", cfg: func(cfg *config) { cfg.Fingerprint = consumer.JSONFields("id") },
			msg: msg("1", "{"), cause: observe.CauseUndecodable, key: "1",
		},
		{
			name: "time ahead", msg: &consumer.Message{ID: "1", Time: now.Add(48 * time.Hour)},
			cause: observe.CausePermanent, key: "1", err: dedup.ErrFuture,
		},
		{
			name: "time in milliseconds", msg: &consumer.Message{ID: "1", Time: time.Unix(now.UnixMilli(), 0)},
			cause: observe.CausePermanent, key: "1", says: "milliseconds in place of seconds",
		},
		{
			name:  "time in seconds that was read as milliseconds",
			msg:   &consumer.Message{ID: "1", Time: time.UnixMilli(now.Unix())},
			cause: observe.CausePermanent, key: "1", err: dedup.ErrFuture, says: "seconds in place of milliseconds",
		},
		{
			name: "time before 1970", msg: &consumer.Message{ID: "1", Time: time.Unix(-1, 0)},
			cause: observe.CausePermanent, key: "1", err: dedup.ErrFuture,
		},
		{
			name: "time of 1970", cfg: func(cfg *config) { cfg.ParkUntimed = true },
			msg:   &consumer.Message{ID: "1", Time: time.Unix(0, 0)},
			cause: observe.CausePermanent, key: "1", err: dedup.ErrFuture, says: "before 1980",
		},
		{
			name: "time of the year 292277026596", msg: &consumer.Message{ID: "1", Time: time.Unix(1<<62, 0)},
			cause: observe.CausePermanent, key: "1", err: dedup.ErrFuture,
		},
		{
			name: "unprovable", before: []*consumer.Message{{ID: "old", Time: now.Add(-40 * 24 * time.Hour)}},
			msg: &consumer.Message{ID: "1", Time: now.Add(-30 * 24 * time.Hour)}, cause: observe.CauseUnprovable,
			key: "1", err: dedup.ErrUnprovable,
		},
		{
			name: "untimed", cfg: func(cfg *config) { cfg.ParkUntimed = true },
			before: []*consumer.Message{{ID: "old"}},
			msg:    &consumer.Message{ID: "1"}, cause: observe.CauseUnprovable, key: "1", err: dedup.ErrUnprovable,
		},
		{
			name: "known content", before: []*consumer.Message{{ID: "1", Aliases: []string{"sig"}}},
			msg: &consumer.Message{ID: "2", Aliases: []string{"new", "sig"}}, cause: observe.CauseKnownContent,
			key: "2", err: consumer.ErrKnownContent,
		},
		{
			name: "bad further key", msg: &consumer.Message{ID: "1", Aliases: []string{""}}, cause: observe.CausePermanent,
			key: "1", err: dedup.ErrNoKey,
		},
	} {
		for _, batched := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/batched %v", tc.name, batched), func(t *testing.T) {
				db := deduptest.NewDatabase()
				store := consumertest.NewStoreOn(db)
				var parked []consumer.MessageOutcome
				cfg := config{Store: store, Handle: poison, Trace: &consumer.Trace{Done: func(_ context.Context, _ *consumer.Delivery, outcomes []consumer.MessageOutcome) {
					for _, o := range outcomes {
						if o.Outcome == observe.Parked {
							parked = append(parked, o)
						}
					}
				}}}
				if tc.cfg != nil {
					tc.cfg(&cfg)
				}
				c := newConsumer(t, cfg)
				for _, m := range tc.before {
					process(t, c, m)
				}
				if tc.cause == observe.CauseUnprovable { // forget the claims
					db.Age(dedup.DefaultWindow + time.Hour)
					if swept, err := store.Purge(t.Context(), dedup.Sweep{}); err != nil ||
						swept.Keys != len(tc.before) {
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
				if l.Cause != tc.cause || l.Record.Key.ID != tc.key || l.Times != 2 || l.Settled ||
					parked[0].Cause != tc.cause || parked[0].Letter != l.ID || parked[0].Key != l.Record.Key {
					t.Errorf("letter: cause %q, key %q, parked %d times, settled %v; want %q, %q, 2, false", l.Cause,
						l.Record.Key.ID, l.Times, l.Settled, tc.cause, tc.key)
				}
				if l.Record.Time.Year() > 9999 || !utf8.ValidString(l.Record.Key.Tenant) {
					t.Errorf("no database can keep %+v", l.Record)
				}
				if tc.err != nil && !errors.Is(parked[0].Err, tc.err) || !strings.Contains(l.Error, tc.says) ||
					l.Error != parked[1].Err.Error() {
					t.Errorf("error %q, told %v; want %v %s", l.Error, parked[0].Err, tc.err, tc.says)
				}
				wantCount(t, db, "2", 0)
				if tc.key != "" && tc.cause != observe.CauseMismatch {
					if _, claimed, _ := store.Lookup(t.Context(), l.Record.Key); claimed {
						t.Error("a parked message leaves a claim behind")
					}
				}
			})
		}
	}
}

func TestMismatchIsDuplicate(t *testing.T) {
	store, traced := &counted{Store: consumertest.NewStore()}, &events{}
	c := newConsumer(t, config{Store: store, MismatchIsDuplicate: true, Trace: traced.trace()})
	process(t, c, msg("1", "a"))
	process(t, c, msg("1", "b"))
	wantCount(t, store.Database(), "1", 1)
	if n := len(letters(t, c)); n != 0 || traced.count("duplicate(mismatch)") != 1 || store.n != 2 {
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
	if found := letters(t, c); len(found) != 1 || found[0].Cause != observe.CauseKnownContent {
		t.Errorf("letters: %v", found)
	}
	if claimed("4") {
		t.Error("known content has left a claim behind")
	}
}

func TestWithoutAParkingLotMessagesAreRejected(t *testing.T) {
	log := &logs{}
	for _, m := range []*consumer.Message{msg("1", "poison"), msg("", "x")} {
		c := newConsumer(t, config{
			Store: struct{ dedup.Store[tx] }{consumertest.NewStore()}, Handle: poison,
			Logger: log.logger(),
		})
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

// A message that cannot be decoded, but has the key of a processed message, is not a duplicate.
func TestWhatHasNoFingerprintIsNoDuplicate(t *testing.T) {
	c := newConsumer(t, config{Store: consumertest.NewStore(), Fingerprint: consumer.JSONFields("amount")})
	process(t, c, msg("1", `{"amount":7}`))
	process(t, c, msg("1", `{"amount":`))
	if found := letters(t, c); len(found) != 1 || found[0].Cause != observe.CauseMismatch {
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
