package consumertest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	dedupdriver "github.com/txonce/txonce/dedup/driver"
)

type tx = *deduptest.Tx

// charge is a correct handler.
// unregistered is a Store that several consumers with one name may use.
type unregistered struct {
	dedup.Store[tx]
	driver.ParkingLot[tx]
	dedupdriver.TxVerifier[tx]
}

func charge(_ context.Context, tx tx, _ *consumer.Message) error { return tx.Add("charges") }

func handlerTest(store dedup.Store[tx], db *deduptest.Database,
	handle consumer.Handler[tx],
) consumertest.HandlerTest[tx] {
	return consumertest.HandlerTest[tx]{
		Store: store,
		New: func(store dedup.Store[tx]) (*consumer.Consumer[tx], error) {
			_, parks := store.(driver.ParkingLot[tx])
			return consumer.New(consumer.Config[tx]{
				Name: "billing", Store: store, RejectGivenUp: !parks, Key: consumer.MessageID, Handle: handle,
				Logger: slog.New(slog.DiscardHandler),
			})
		},
		Message: func(n int) *consumer.Message { return &consumer.Message{ID: fmt.Sprint("order-", n)} },
		Effects: func(context.Context) (int, error) { return db.Count("charges"), nil },
	}
}

func TestAHandlerAsItShouldBe(t *testing.T) {
	t.Run("with a parking lot", func(t *testing.T) {
		store := consumertest.NewStore()
		consumertest.TestHandler(t, handlerTest(store, store.Database(), charge))
	})
	t.Run("without", func(t *testing.T) {
		store := deduptest.NewStore()
		consumertest.TestHandler(t, handlerTest(store, store.Database(), charge))
	})
	t.Run("two effects each", func(t *testing.T) {
		store := consumertest.NewStore()
		h := handlerTest(store, store.Database(), func(ctx context.Context, tx tx, m *consumer.Message) error {
			return errors.Join(charge(ctx, tx, m), charge(ctx, tx, m))
		})
		h.Each = 2
		consumertest.TestHandler(t, h)
	})
	t.Run("in batches", func(t *testing.T) {
		store := consumertest.NewStore()
		h := handlerTest(store, store.Database(), nil)
		h.New = func(store dedup.Store[tx]) (*consumer.Consumer[tx], error) {
			return consumer.New(consumer.Config[tx]{
				Name: "billing", Store: store, Key: consumer.MessageID, Logger: slog.New(slog.DiscardHandler),
				HandleBatch: func(ctx context.Context, tx tx, msgs []*consumer.Message) (err error) {
					for _, m := range msgs {
						err = errors.Join(err, charge(ctx, tx, m))
					}
					return err
				},
			})
		}
		consumertest.TestHandler(t, h)
	})
	t.Run("outgoing messages", func(t *testing.T) {
		store := consumertest.NewStore()
		consumertest.TestHandler(t, outgoingTest(store, func(ctx context.Context, m *consumer.Message) []string {
			return []string{"charged " + m.ID, "receipt " + m.ID}
		}))
	})
	t.Run("several messages of one row", func(t *testing.T) {
		consumertest.TestHandler(t, rowTest(consumertest.NewStore(), rowHandler(false)))
	})
}

// outgoing is the value of the database in which the handler of outgoingTest keeps what it enqueues.
const outgoing = "outgoing messages"

// outgoingTest has a handler that enqueues messages with these IDs.
func outgoingTest(store *consumertest.Store, ids func(context.Context, *consumer.Message) []string,
) consumertest.HandlerTest[tx] {
	h := handlerTest(store, store.Database(), func(ctx context.Context, tx tx, m *consumer.Message) error {
		return errors.Join(charge(ctx, tx, m), tx.Put(ctx, outgoing, ids(ctx, m)))
	})
	h.Outgoing = func(_ context.Context, tx tx) ([]string, error) {
		value, err := tx.Value(outgoing)
		ids, _ := value.([]string)
		return ids, err
	}
	return h
}

// rowHandler is a BatchHandler for HandlerTest.SameRow: it charges once for each message, or once for each
// Message.OrderingKey as UPDATE … FROM unnest without GROUP BY does.
func rowHandler(perKey bool) consumer.BatchHandler[tx] {
	return func(ctx context.Context, tx tx, msgs []*consumer.Message) (err error) {
		seen := map[string]bool{}
		for _, m := range msgs {
			if perKey && seen[m.OrderingKey] {
				continue
			}
			seen[m.OrderingKey] = true
			err = errors.Join(err, charge(ctx, tx, m))
		}
		return err
	}
}

func rowTest(store *consumertest.Store, handle consumer.BatchHandler[tx]) consumertest.HandlerTest[tx] {
	h := handlerTest(store, store.Database(), nil)
	h.New = func(store dedup.Store[tx]) (*consumer.Consumer[tx], error) {
		return consumer.New(consumer.Config[tx]{
			Name: "billing", Store: store, Key: consumer.MessageID,
			Logger: slog.New(slog.DiscardHandler), HandleBatch: handle,
		})
	}
	h.SameRow = func(n int) *consumer.Message {
		return &consumer.Message{ID: fmt.Sprint("payment-", n), OrderingKey: "alice"}
	}
	return h
}

// markFirst claims in a separate transaction, before the handler's.
type markFirst struct{ *consumertest.Store }

func (s markFirst) InTx(ctx context.Context, recs []dedup.Record, fn func(tx, []dedup.Claim) error) error {
	var claims []dedup.Claim
	if err := s.Store.InTx(ctx, recs, func(_ tx, c []dedup.Claim) error { claims = c; return nil }); err != nil {
		return err
	}
	return s.Store.InTx(ctx, nil, func(tx tx, _ []dedup.Claim) error { return fn(tx, claims) })
}

// effectFirst claims in a separate transaction, after the handler's. For the message of "concurrent twin" it waits
// until both copies have read that there is no claim, so that the case always finds the mistake.
type effectFirst struct {
	*consumertest.Store
	looked chan struct{} // a value for each look at that message
}

const twinID = "order-4"

func (s effectFirst) InTx(ctx context.Context, recs []dedup.Record, fn func(tx, []dedup.Claim) error) error {
	claims := make([]dedup.Claim, len(recs))
	for i, r := range recs {
		claims[i].Verdict = dedup.First
		if _, found, err := s.Lookup(ctx, r.Key); err != nil {
			return err
		} else if found {
			claims[i].Verdict = dedup.Duplicate
		}
		if r.Key.ID == twinID {
			s.looked <- struct{}{}
		}
	}
	if err := s.Store.InTx(ctx, nil, func(tx tx, _ []dedup.Claim) error { return fn(tx, claims) }); err != nil {
		return err
	}
	if len(recs) > 0 && recs[0].Key.ID == twinID {
		for len(s.looked) < 2 {
			select {
			case <-time.After(time.Millisecond):
			case <-ctx.Done():
				return fmt.Errorf("the twin has not looked: %w", ctx.Err())
			}
		}
	}
	return s.Store.InTx(ctx, recs, func(tx, []dedup.Claim) error { return nil })
}

// claimsNothing answers First to every claim.
type claimsNothing struct{ *consumertest.Store }

func (s claimsNothing) InTx(ctx context.Context, recs []dedup.Record, fn func(tx, []dedup.Claim) error) error {
	claims := make([]dedup.Claim, len(recs))
	for i := range claims {
		claims[i].Verdict = dedup.First
	}
	return s.Store.InTx(ctx, nil, func(tx tx, _ []dedup.Claim) error { return fn(tx, claims) })
}

// TestHandler must fail for wrong handlers and stores.
func TestHandlersAndStoresThatAreBrokenAreFound(t *testing.T) {
	var outside atomic.Int64
	var deliveries, runs atomic.Int64
	for _, tc := range []struct {
		name  string
		broke func(h *consumertest.HandlerTest[tx], s *consumertest.Store)
		fails []string // at least these
		says  string
	}{
		{"effect outside of the transaction", func(h *consumertest.HandlerTest[tx], s *consumertest.Store) {
			*h = handlerTest(s, s.Database(), func(context.Context, tx,
				*consumer.Message,
			) error {
				outside.Add(1)
				return nil
			})
			h.Effects = func(context.Context) (int, error) { return int(outside.Load()), nil }
		}, []string{"crash before commit"}, "outside of its transaction"},
		{"another key on each delivery", func(h *consumertest.HandlerTest[tx], s *consumertest.Store) {
			h.Message = func(int) *consumer.Message { return &consumer.Message{ID: fmt.Sprint(deliveries.Add(1))} }
		}, []string{
			"delivered twice", "delivered twice in one batch", "crash after commit",
			"concurrent twin",
		}, "is the key the same"},
		{
			"claims before, in another transaction", func(h *consumertest.HandlerTest[tx],
				s *consumertest.Store,
			) {
				h.Store = markFirst{s}
			},
			[]string{"crash before commit"},
			"claim was not rolled back",
		},
		{
			"claims afterwards, in another transaction", func(h *consumertest.HandlerTest[tx], s *consumertest.Store) {
				h.Store = effectFirst{s, make(chan struct{}, 100)}
			},
			[]string{"concurrent twin", "delivered twice in one batch"},
			"did not wait",
		},
		{
			"claims nothing", func(h *consumertest.HandlerTest[tx],
				s *consumertest.Store,
			) {
				h.Store = claimsNothing{s}
			},
			[]string{"delivered twice", "delivered twice in one batch", "crash after commit", "concurrent twin"},
			"is the key the same",
		},
		{"handler fails", func(h *consumertest.HandlerTest[tx], s *consumertest.Store) {
			*h = handlerTest(s, s.Database(), func(context.Context, tx,
				*consumer.Message,
			) error {
				return consumer.Permanent(errors.New("no funds"))
			})
		}, []string{
			"delivered twice", "delivered twice in one batch", "crash before commit", "crash after commit",
			"concurrent twin",
		}, "no funds"},
		{"store that was not given", func(h *consumertest.HandlerTest[tx], s *consumertest.Store) {
			h.New = func(dedup.Store[tx]) (*consumer.Consumer[tx], error) {
				return handlerTest(s, s.Database(), charge).New(unregistered{s, s, s})
			}
		}, []string{"crash before commit", "crash after commit", "concurrent twin"}, "use the store that it is given"},
		{"no consumer", func(h *consumertest.HandlerTest[tx], s *consumertest.Store) {
			h.New = func(dedup.Store[tx]) (*consumer.Consumer[tx], error) { return nil, errors.New("no config") }
		}, []string{
			"delivered twice", "delivered twice in one batch", "crash before commit", "crash after commit",
			"concurrent twin",
		}, "no config"},
		{"nothing counts effects", func(h *consumertest.HandlerTest[tx], s *consumertest.Store) {
			h.Effects = func(context.Context) (int, error) { return 0, nil }
		}, []string{
			"delivered twice", "delivered twice in one batch", "crash before commit", "crash after commit",
			"concurrent twin",
		}, "0 effects, want 1"},
		{"one effect for each row", func(h *consumertest.HandlerTest[tx], s *consumertest.Store) {
			*h = rowTest(s, rowHandler(true))
		}, []string{"one row in one batch"}, "1 effects, want 10: the handler loses effects"},
		{"one key for each row", func(h *consumertest.HandlerTest[tx], s *consumertest.Store) {
			*h = rowTest(s, rowHandler(false))
			h.SameRow = func(int) *consumer.Message { return &consumer.Message{ID: "alice"} }
		}, []string{"one row in one batch"}, "SameRow returns messages with the same key"},
		{"another ID in each run", func(h *consumertest.HandlerTest[tx], s *consumertest.Store) {
			*h = outgoingTest(s, func(_ context.Context, m *consumer.Message) []string {
				return []string{"receipt " + m.ID, fmt.Sprint("charged ", runs.Add(1))}
			})
		}, []string{"same outgoing messages"}, `["charged `},
		{"a message that only some runs send", func(h *consumertest.HandlerTest[tx], s *consumertest.Store) {
			*h = outgoingTest(s, func(_ context.Context, m *consumer.Message) []string {
				return []string{"charged " + m.ID, "receipt " + m.ID}[:runs.Add(1)%2+1]
			})
		}, []string{"same outgoing messages"}, "Only run 1 has [\"receipt order-5\"], only run 2 has []"},
		{"no outgoing message", func(h *consumertest.HandlerTest[tx], s *consumertest.Store) {
			*h = outgoingTest(s, func(context.Context, *consumer.Message) []string { return nil })
		}, []string{"same outgoing messages"}, "Outgoing finds no new message"},
		{"nobody can tell the outgoing messages", func(h *consumertest.HandlerTest[tx], s *consumertest.Store) {
			h.Outgoing = func(context.Context, tx) ([]string, error) { return nil, errors.New("no such table") }
		}, []string{"same outgoing messages"}, "HandlerTest.Outgoing: no such table"},
		{"effects outside, with outgoing messages", func(h *consumertest.HandlerTest[tx], s *consumertest.Store) {
			*h = outgoingTest(s, func(_ context.Context, m *consumer.Message) []string {
				outside.Add(1)
				return []string{"charged " + m.ID}
			})
			h.Effects = func(context.Context) (int, error) { return int(outside.Load()), nil }
		}, []string{"crash before commit", "same outgoing messages"}, "after the last run"},
		{
			"incomplete", func(h *consumertest.HandlerTest[tx], s *consumertest.Store) { h.Message = nil },
			[]string{""},
			"HandlerTest.Message",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			store := consumertest.NewStore()
			h := handlerTest(store, store.Database(), charge)
			tc.broke(&h, store)
			failed := consumertest.FailedHandlerCases(t, h)
			got := slices.Sorted(maps.Keys(failed))
			slices.Sort(tc.fails)
			if diff := cmp.Diff(tc.fails, got); diff != "" {
				t.Errorf("cases that fail: %s\n%v", diff, failed)
			}
			if said := fmt.Sprint(failed); !strings.Contains(said, tc.says) {
				t.Errorf("%q is not said in %s", tc.says, said)
			}
		})
	}
}
