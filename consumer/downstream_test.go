package consumer_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup/deduptest"
)

func TestDownstreamKey(t *testing.T) {
	got := map[string][]string{}
	var handlers []context.Context
	c, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "orders", Store: consumertest.NewStore(), Key: consumer.MessageID,
		Handle: func(ctx context.Context, _ *deduptest.Tx, m *consumer.Message) error {
			handlers = append(handlers, ctx)
			for _, label := range []string{"charge", "mail", "charge", ""} {
				key, err := consumer.DownstreamKey(ctx, label)
				if err != nil {
					key = err.Error()
				}
				got[m.ID] = append(got[m.ID], key)
			}
			return errors.New("so that it runs again")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, id := range []string{"1", "2"} {
			_ = c.Process(t.Context(), &consumer.Message{ID: id, Topic: "orders"})
		}
	}
	one, two := got["1"], got["2"]
	if len(one) < 8 || one[0] != one[4] || one[1] != one[5] {
		t.Fatalf("two runs have the keys %q", one)
	}
	if one[0] == one[1] || one[0] == two[0] || len(one[0]) != 36 {
		t.Errorf("two labels or two messages have one key: %q, %q", one, two)
	}
	if !strings.Contains(one[2], `called before with the label "charge"`) || !strings.Contains(one[3], "needs a label") {
		t.Errorf("a label twice: %q; none: %q", one[2], one[3])
	}
	if one[0] != "fd6da283-613b-81c7-8480-044dddefac75" {
		t.Errorf("the key has changed to %s: calls that are repeated after an upgrade would happen again", one[0])
	}
	for name, ctx := range map[string]context.Context{"outside": t.Context(), "after the handler": handlers[0]} {
		if key, err := consumer.DownstreamKey(ctx, "late"); err == nil {
			t.Errorf("%s: %s", name, key)
		}
	}
}
