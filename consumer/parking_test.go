package consumer_test

import (
	"context"
	"maps"
	"testing"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
)

// What the hook Parking returned comes back at the replay, and neither Repair nor the handler sees that it was kept.
func TestParkedBy(t *testing.T) {
	poisoned := true
	var replays []consumer.Delivery
	headers := map[string]string{"a": "b"}
	c := newConsumer(t, config{
		Store: consumertest.NewStore(),
		Handle: func(_ context.Context, tx tx, m *consumer.Message) error {
			if !maps.Equal(m.Headers, headers) {
				t.Errorf("the handler got the headers %v", m.Headers)
			}
			if poisoned {
				return consumer.Permanent(errPoison)
			}
			return tx.Add(m.ID)
		},
		Trace: &consumer.Trace{
			Parking: func(_ context.Context, d *consumer.Delivery) string { return "pass of " + d.Messages[0].ID },
			Start: func(ctx context.Context, d *consumer.Delivery) context.Context {
				if d.Letter != (consumer.DeadLetterID{}) {
					replays = append(replays, *d)
				}
				return ctx
			},
		},
	})
	sent := msg("1", "x")
	sent.Headers = maps.Clone(headers)
	process(t, c, sent)
	if !maps.Equal(sent.Headers, headers) {
		t.Errorf("the headers of the delivered message were changed to %v", sent.Headers)
	}
	poisoned = false
	for _, l := range letters(t, c) {
		if by := l.Message.Headers["txonce-parked-by"]; by != "pass of 1" {
			t.Errorf("the letter was parked by %q", by)
		}
		opts := consumer.Replay{Repair: func(m *consumer.Message) error {
			if !maps.Equal(m.Headers, headers) {
				t.Errorf("Repair got the headers %v", m.Headers)
			}
			return nil
		}}
		if ran, err := c.Replay(t.Context(), l, opts); err != nil || !ran {
			t.Errorf("Replay: %t, %v", ran, err)
		}
	}
	if len(replays) != 1 || replays[0].ParkedBy != "pass of 1" {
		t.Errorf("replays: %+v", replays)
	}
}

// A letter is written whatever the hook does, and one of two hooks is enough.
func TestParkingHooks(t *testing.T) {
	says := func(text string) *consumer.Trace {
		return &consumer.Trace{Parking: func(context.Context, *consumer.Delivery) string { return text }}
	}
	panics := &consumer.Trace{Parking: func(context.Context, *consumer.Delivery) string { panic("Parking") }}
	for _, test := range []struct {
		name  string
		trace *consumer.Trace
		want  string
	}{
		{"none", &consumer.Trace{}, ""},
		{"one", says("x").Then(&consumer.Trace{}), "x"},
		{"the second", (&consumer.Trace{}).Then(says("x")), "x"},
		{"the first is preferred", says("x").Then(says("y")), "x"},
		{"the first has nothing", says("").Then(says("y")), "y"},
		{"a panic", panics, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newConsumer(t, config{
				Store: consumertest.NewStore(), Trace: test.trace,
				Handle: func(context.Context, tx, *consumer.Message) error { return consumer.Permanent(errPoison) },
			})
			process(t, c, msg("1", "x"))
			all := letters(t, c)
			if len(all) != 1 || all[0].Message.Headers["txonce-parked-by"] != test.want {
				t.Errorf("letters: %+v, want one that was parked by %q", all, test.want)
			}
		})
	}
}
