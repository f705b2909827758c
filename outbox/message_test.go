package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
)

func TestOutboxMessageValidate(t *testing.T) {
	long := strings.Repeat("x", 255)
	for _, test := range []struct {
		name string
		m    outbox.Message
		want string // of the error; empty: it is fine
	}{
		{"plain", outbox.Message{Topic: "t"}, ""},
		{"longest", outbox.Message{Topic: long, ID: long}, ""},
		{"any key", outbox.Message{Topic: "t", OrderingKey: "\x00\xff"}, ""},
		{"header of any bytes", outbox.Message{Topic: "t", Headers: map[string]string{"a": "\x00\xff", "txonce": ""}}, ""},
		{"no topic", outbox.Message{ID: "x"}, "no topic"},
		{"long topic", outbox.Message{Topic: long + "x"}, "topic"},
		{"topic with NUL", outbox.Message{Topic: "a\x00b"}, "topic"},
		{"topic of other bytes", outbox.Message{Topic: "\xff"}, "topic"},
		{"long id", outbox.Message{Topic: "t", ID: long + "x"}, `topic "t": id`},
		{"id with NUL", outbox.Message{Topic: "t", ID: "\x00"}, `topic "t": id`},
		{"id of other bytes", outbox.Message{Topic: "t", ID: "\xff"}, `topic "t": id`},
		{
			"header without name",
			outbox.Message{Topic: "t", Headers: map[string]string{"": "x"}},
			`topic "t": a header without name`,
		},
		{
			"reserved header",
			outbox.Message{Topic: "t", Headers: map[string]string{"txonce-id": "x"}},
			`topic "t": header "txonce-id"`,
		},
		{
			"reserved header, capitals",
			outbox.Message{Topic: "t", Headers: map[string]string{"TxOnce-Anything": "x"}},
			`topic "t": header "TxOnce-Anything"`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			switch err := test.m.Validate(); {
			case test.want == "" && err != nil:
				t.Errorf("Validate = %v, want nil", err)
			case test.want != "" && (!errors.Is(err, outbox.ErrBadMessage) || !strings.Contains(err.Error(),
				test.want)):
				t.Errorf("Validate = %v, want ErrBadMessage that names %s", err, test.want)
			}
		})
	}
}

// All or nothing, and the caller's slice stays as it is.
func TestOutboxPrepare(t *testing.T) {
	ctx, end := driver.WithScope(t.Context(), "seed")
	defer end()
	msgs := []outbox.Message{{Topic: "t"}, {Topic: "t", ID: "mine"}}
	before := append([]outbox.Message(nil), msgs...)
	ready, done, err := driver.Prepare(ctx, msgs)
	if err != nil {
		t.Fatal(err)
	}
	done()
	if diff := cmp.Diff(before, msgs); diff != "" {
		t.Errorf("Prepare changed its argument: %s", diff)
	}
	if len(ready) != 2 || ready[0].ID == "" || ready[1].ID != "mine" {
		t.Errorf("Prepare = %+v", ready)
	}
	if _, _, err := driver.Prepare(ctx, []outbox.Message{{Topic: "t"}, {}}); !errors.Is(err, outbox.ErrBadMessage) {
		t.Errorf("Prepare with a bad message = %v", err)
	}
	// The refused call has taken no ordinal: its repetition without the bad message gets the next ID, as it would have.
	next, _, err := driver.Prepare(ctx, []outbox.Message{{Topic: "t"}})
	if err != nil {
		t.Fatal(err)
	}
	again, endAgain := driver.WithScope(t.Context(), "seed")
	defer endAgain()
	both, _, err := driver.Prepare(again, []outbox.Message{{Topic: "t"}, {Topic: "t"}})
	if err != nil || both[0].ID != ready[0].ID || both[1].ID != next[0].ID {
		t.Errorf("%v, %v: want %s and %s", both, err, ready[0].ID, next[0].ID)
	}
	if _, _, err := driver.Prepare(t.Context(), msgs); !errors.Is(err, outbox.ErrNoID) {
		t.Errorf("Prepare outside a scope = %v, want ErrNoID", err)
	}
}

// Shard is stored in each row, so its values must never change. They were computed by another program.
func TestOutboxShard(t *testing.T) {
	for _, test := range []struct {
		m    outbox.Message
		n    int
		want int
	}{
		{outbox.Message{OrderingKey: "a", ID: "x"}, 64, 12},
		{outbox.Message{OrderingKey: "a", ID: "y"}, 64, 12},
		{outbox.Message{ID: "a"}, 64, 12},
		{outbox.Message{OrderingKey: "customer-4711", ID: "x"}, 64, 15},
		{outbox.Message{OrderingKey: "\x00\xff", ID: "x"}, 64, 32},
		{outbox.Message{OrderingKey: "a", ID: "x"}, 1, 0},
		{outbox.Message{OrderingKey: "customer-4711", ID: "x"}, 1024, 79},
	} {
		if got := driver.Shard(&test.m, test.n); got != test.want {
			t.Errorf("Shard(key %q, id %q; %d) = %d, want %d", test.m.OrderingKey, test.m.ID, test.n, got, test.want)
		}
	}
	counts := make([]int, 64)
	for i := range 64_000 {
		counts[driver.Shard(&outbox.Message{OrderingKey: fmt.Sprintf("customer-%d", i)}, 64)]++
	}
	for shard, n := range counts {
		if n < 500 || n > 1500 {
			t.Errorf("shard %d has %d of 64,000 keys", shard, n)
		}
	}
}

func TestOutboxPermanent(t *testing.T) {
	if outbox.Permanent(nil) != nil {
		t.Error("Permanent(nil) is an error")
	}
	refused := errors.New("refused")
	err := fmt.Errorf("publish: %w", outbox.Permanent(refused))
	if !outbox.IsPermanent(err) || !errors.Is(err, refused) || err.Error() != "publish: refused" {
		t.Errorf("%v: permanent %v, wraps %v", err, outbox.IsPermanent(err), errors.Is(err, refused))
	}
	if outbox.IsPermanent(refused) || outbox.IsPermanent(nil) {
		t.Error("an error that nobody marked is permanent")
	}
}

func TestOutboxUnavailableError(t *testing.T) {
	for want, err := range map[string]*outbox.UnavailableError{
		"outbox: broker unavailable: context deadline exceeded": {Err: context.DeadlineExceeded},
		"outbox: broker unavailable, next try in 3s: context deadline exceeded": {
			After: 3 * time.Second,
			Err:   context.DeadlineExceeded,
		},
	} {
		if err.Error() != want || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestOutboxPlainLayout(t *testing.T) {
	m := outbox.Stored{
		Message: outbox.Message{ID: "id", Headers: map[string]string{"tenant": "x"}}, Seq: 42,
		Enqueued: time.Date(2026, 11, 21, 16, 15, 0, 120_000_000, time.FixedZone("", 3600)),
	}
	got := outbox.PlainHeaders(m)
	if diff := cmp.Diff(map[string]string{
		"tenant": "x", "txonce-id": "id", "txonce-sequence": "42",
		"txonce-enqueued-at": "2026-11-21T15:15:00.12Z",
	}, got); diff != "" {
		t.Error(diff)
	}
	if len(m.Headers) != 1 {
		t.Errorf("PlainHeaders changed the message's headers: %v", m.Headers)
	}
	if got := outbox.PlainHeaders(outbox.Stored{}); len(got) != 3 {
		t.Errorf("without headers: %v", got)
	}
}
