package consumertest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
)

// TestHandler finds IDs that differ between runs of the handler, and says which and why.
func TestOutgoingMessagesThatDiffer(t *testing.T) {
	const differ = "two runs of the handler for one message enqueue different messages. Only run 1 has"
	var started atomic.Int64
	for _, tc := range []struct {
		name string
		ids  func() func(context.Context, *consumer.Message) []string // for each process
		says []string
	}{
		{"the time in seconds", always(func(m *consumer.Message) []string {
			return []string{fmt.Sprint(m.ID, " at ", time.Now().Unix())}
		}), []string{differ, `["order-5 at 9466848`, "time.Now"}},
		{"the order of a map of two", always(func(m *consumer.Message) (ids []string) {
			for kind := range map[string]int{"receipt": 1, "charge": 2} {
				ids = append(ids, fmt.Sprintf("%s-%d %s", m.ID, len(ids), kind))
			}
			return ids
		}), []string{differ, "-0 ", "the order of maps"}},
		{"the attempt", always(func(m *consumer.Message) []string {
			return []string{fmt.Sprint(m.ID, " attempt ", m.Attempt)}
		}), []string{differ, `attempt 1"], only run 2 has`, `attempt 2"]`, "Message.Attempt"}},
		{"a counter of each process", func() func(context.Context, *consumer.Message) []string {
			n := 0
			return func(_ context.Context, m *consumer.Message) []string {
				n++
				return []string{fmt.Sprint(m.ID, " number ", n)}
			}
		}, []string{differ, `number 1"], only run 3 has`, `number 2"]`, "counters in memory"}},
		{"the start of a process", func() func(context.Context, *consumer.Message) []string {
			n := started.Add(1)
			return func(_ context.Context, m *consumer.Message) []string {
				return []string{fmt.Sprint(m.ID, " of process ", n)}
			}
		}, []string{differ, "only run 2 has"}},
		{"one message more", func() func(context.Context, *consumer.Message) []string {
			n := 0
			return func(_ context.Context, m *consumer.Message) []string {
				n++
				return []string{m.ID, m.ID}[:min(n, 2)]
			}
		}, []string{differ, `has [], only run 3 has ["order-5"]`}},
		{
			"an empty ID", always(func(*consumer.Message) []string { return []string{"a", ""} }),
			[]string{"HandlerTest.Outgoing returns an empty ID among"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { wantSaid(t, outgoingOf(tc.ids), tc.says...) })
		})
	}
}

func always(ids func(*consumer.Message) []string) func() func(context.Context, *consumer.Message) []string {
	return func() func(context.Context, *consumer.Message) []string {
		return func(_ context.Context, m *consumer.Message) []string { return ids(m) }
	}
}

// outgoingOf has a handler that enqueues messages with the IDs that ids returns for its process.
func outgoingOf(ids func() func(context.Context, *consumer.Message) []string) consumertest.HandlerTest[tx] {
	store := consumertest.NewStore()
	h := outgoingTest(store, ids())
	h.New = func(s dedup.Store[tx]) (*consumer.Consumer[tx], error) { return outgoingTest(store, ids()).New(s) }
	return h
}

// wantSaid runs the case of outgoing messages, which must fail and say so.
func wantSaid(t *testing.T, h consumertest.HandlerTest[tx], says ...string) {
	t.Helper()
	said := consumertest.FailedHandlerCases(t, h)["same outgoing messages"]
	if said == "" {
		t.Fatal("the case does not fail")
	}
	for _, want := range says {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not said in %s", want, said)
		}
	}
}

// What goes wrong in Outgoing itself, or in a later run of the handler, is said by name.
func TestOutgoingThatCannotSay(t *testing.T) {
	once := func(first bool, then func() error) func() error {
		n := 0
		return func() error {
			if n++; first == (n == 1) {
				return then()
			}
			return nil
		}
	}
	broken := errors.New("broken")
	for _, first := range []bool{true, false} { // before the handler, and after it
		for name, then := range map[string]func() error{
			"HandlerTest.Outgoing panicked: no row": func() error { panic("no row") },
			"HandlerTest.Outgoing: broken":          func() error { return broken },
		} {
			t.Run(fmt.Sprint(name, ", first ", first), func(t *testing.T) {
				h := outgoingOf(always(func(m *consumer.Message) []string { return []string{m.ID} }))
				read, fails := h.Outgoing, once(first, then)
				h.Outgoing = func(ctx context.Context, tx tx) ([]string, error) {
					if err := fails(); err != nil {
						return nil, err
					}
					return read(ctx, tx)
				}
				wantSaid(t, h, name)
			})
		}
	}
	t.Run("the handler fails in its second run", func(t *testing.T) {
		h := outgoingOf(always(func(m *consumer.Message) []string { return []string{m.ID} }))
		runs := 0
		h.New = func(s dedup.Store[tx]) (*consumer.Consumer[tx], error) {
			return handlerTest(h.Store, nil, func(ctx context.Context, tx tx, m *consumer.Message) error {
				if m.ID == "order-5" {
					if runs++; runs == 2 {
						return consumer.Permanent(broken)
					}
				}
				return errors.Join(charge(ctx, tx, m), tx.Put(ctx, outgoing, []string{m.ID}))
			}).New(s)
		}
		wantSaid(t, h, "run 2 of the handler for one message failed, though it must succeed: broken")
	})
	t.Run("a store that was not given", func(t *testing.T) {
		h := outgoingOf(always(func(m *consumer.Message) []string { return []string{m.ID} }))
		inner, store := h.New, h.Store.(*consumertest.Store)
		h.New = func(dedup.Store[tx]) (*consumer.Consumer[tx], error) { return inner(unregistered{store, store, store}) }
		wantSaid(t, h, "run 1: the handler did not get as far as the commit", "does HandlerTest.New use the store")
	})
}
