package githubhook_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook/githubhook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/verifiers"
)

// receiver gives verified events to a Consumer, as the receiver of package webhook does.
type receiver struct {
	t        *testing.T
	store    *consumertest.Store
	consumer *consumer.Consumer[*deduptest.Tx]
	ran      []string // topic and ID of each event whose handler ran
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{t: t, store: consumertest.NewStore()}
	c, err := consumer.New(consumer.Config[*deduptest.Tx]{
		Name: "releases", Store: r.store, Key: consumer.MessageID, Window: githubhook.Horizon + 1,
		Logger: slog.New(slog.DiscardHandler),
		Handle: func(_ context.Context, tx *deduptest.Tx, msg *consumer.Message) error {
			r.ran = append(r.ran, msg.Topic+" "+msg.ID)
			return tx.Add("effect")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.consumer = c
	return r
}

func (r *receiver) deliver(v *githubhook.Verifier, h http.Header, body string) {
	r.t.Helper()
	event, refusal := verify(r.t, v, h, body)
	if refusal != "" {
		r.t.Fatalf("refused as %q", refusal)
	}
	if err := r.consumer.Process(r.t.Context(), &event.Message); err != nil {
		r.t.Fatal(err)
	}
}

// parked returns the cause and the ID of each dead letter.
func (r *receiver) parked() (parked []string) {
	r.t.Helper()
	letters, err := r.store.DeadLetters(r.t.Context(), consumer.DeadLetterFilter{})
	if err != nil {
		r.t.Fatal(err)
	}
	for _, l := range letters {
		parked = append(parked, fmt.Sprint(l.Cause, " ", l.Message.ID))
	}
	return parked
}

func (r *receiver) want(ran, parked []string) {
	r.t.Helper()
	if diff := cmp.Diff(ran, r.ran); diff != "" {
		r.t.Errorf("handlers that ran (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(parked, r.parked()); diff != "" {
		r.t.Errorf("dead letters (-want +got)\n%s", diff)
	}
}

func TestDeduplication(t *testing.T) {
	h := headers(sha256Of(secret, body), guid, "release")
	t.Run("a redelivery", func(t *testing.T) {
		r, v := newReceiver(t), newVerifier(t, nil)
		r.deliver(v, h, body)
		r.deliver(v, h, body)
		r.want([]string{"release " + guid}, nil)
	})
	t.Run("case 54: a captured delivery with a new X-GitHub-Delivery", func(t *testing.T) {
		r, v := newReceiver(t), newVerifier(t, nil)
		r.deliver(v, h, body)
		r.deliver(v, verifiers.Change(h, "X-GitHub-Delivery", otherGUID), body)
		r.want([]string{"release " + guid}, []string{"known_content " + otherGUID})
	})
	t.Run("a captured body under the ID of a delivery that comes later", func(t *testing.T) {
		const otherBody = `{"action":"published","release":{"id":18}}`
		r, v := newReceiver(t), newVerifier(t, nil)
		r.deliver(v, h, body) // the attacker's: a captured body whose own delivery never arrived
		r.deliver(v, headers(sha256Of(secret, otherBody), guid, "release"), otherBody)
		r.want([]string{"release " + guid}, []string{"mismatch " + guid}) // kept, not dropped as a duplicate
	})
	t.Run("one event to two apps, with one ID and two payloads", func(t *testing.T) {
		const otherBody = `{"action":"published","release":{"id":17},"installation":{"id":3}}`
		r, hook, app := newReceiver(t), newVerifier(t, nil),
			newVerifier(t, func(c *githubhook.Config) { c.Endpoint = "app" })
		r.deliver(hook, h, body)
		r.deliver(app, headers(sha256Of(secret, otherBody), guid, "release"), otherBody)
		r.want([]string{"release " + guid, "release " + guid}, nil)
	})
	t.Run("E17: one body under three topics that are trusted", func(t *testing.T) {
		r, v := newReceiver(t), newVerifier(t, trustTopic)
		var want []string
		for i, topic := range []string{"release", "deployment", "push"} {
			id := fmt.Sprint("guid-", i)
			r.deliver(v, headers(sha256Of(secret, body), id, topic), body)
			want = append(want, topic+" "+id)
		}
		r.want(want, nil)
	})
}
