package stripehook_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/txonce/txonce/adapters/webhook/stripehook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/observe"
)

func TestWebhookAndBackfillHaveOneEffect(t *testing.T) {
	for _, account := range []string{"", "acct_7"} {
		for _, first := range []string{"webhook", "backfill"} {
			t.Run(fmt.Sprintf("%s first, account %q", first, account), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world) {
					e := event(1, time.Minute)
					e.Account = account
					w.stripe.add(e)
					cfg := stripehook.Config{ObjectAlias: true}
					b := w.backfill(t, func(fill *stripehook.BackfillConfig[tx], _ *stripehook.ClientConfig) {
						fill.Verifier = newVerifier(t, cfg)
					})
					for range 2 {
						if first == "webhook" {
							w.receive(t, cfg, e)
						}
						w.once(t, b)
						w.receive(t, cfg, e)
					}
					if runs := w.took(); len(runs) != 1 {
						t.Errorf("%d runs, want 1", len(runs))
					}
					w.wantEffects(t, 1)
				})
			})
		}
	}
}

// The message is the same from both, but for the bytes of the payload.
func TestWebhookAndBackfillMakeTheSameMessage(t *testing.T) {
	for _, tt := range []struct {
		name  string
		event func(*stripehook.Event)
		hook  stripehook.Config
		fill  string // ClientConfig.Account
	}{
		{"of the account itself", func(*stripehook.Event) {}, stripehook.Config{}, ""},
		{
			"of the account itself, named", func(*stripehook.Event) {},
			stripehook.Config{Account: "acct_1", ObjectAlias: true},
			"",
		},
		{
			"of the account itself, named twice", func(*stripehook.Event) {},
			stripehook.Config{Account: "acct_1"},
			"acct_1",
		},
		{
			"of a connected account, whose list does not name it", func(e *stripehook.Event) { e.Account = "acct_2" },
			stripehook.Config{Account: "acct_1"},
			"acct_2",
		},
		{
			"of a connected account, from a Connect endpoint", func(e *stripehook.Event) { e.Account = "acct_2" }, connect,
			"acct_2",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				e := event(1, time.Minute)
				w.stripe.add(e)
				w.once(t, w.backfill(t, func(cfg *stripehook.BackfillConfig[tx], client *stripehook.ClientConfig) {
					cfg.Verifier, client.Account = newVerifier(t, tt.hook), tt.fill
				}))
				filled := w.took()
				tt.event(&e)
				hooked := w.receive(t, tt.hook, e)
				if len(filled) != 1 || len(w.took()) != 0 {
					t.Fatalf("%d runs by the backfill, want 1, and none by the webhook", len(filled))
				}
				if diff := cmp.Diff(hooked, filled[0], cmpopts.IgnoreFields(consumer.Message{}, "Payload",
					"Attempt")); diff != "" {
					t.Errorf("(-webhook +backfill):\n%s", diff)
				}
			})
		})
	}
}

// Case 69, by the consumer: whichever comes first runs.
func TestThinSnapshotAndBackfillHaveOneEffect(t *testing.T) {
	snapshot := func() stripehook.Event { return event(1, time.Minute) }
	thin := func() stripehook.Event {
		e := event(2, time.Minute)
		e.Thin, e.Type, e.Snapshot, e.Created = true, "v1.invoice.paid", "evt_00001",
			e.Created.Add(987*time.Millisecond)
		return e
	}
	for _, order := range []string{
		"snapshot thin backfill", "thin snapshot backfill", "thin backfill snapshot",
		"backfill thin snapshot",
	} {
		t.Run("case 69: "+order, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world) {
				w.stripe.add(snapshot())
				b := w.backfill(t)
				for _, way := range strings.Fields(order) {
					switch way {
					case "snapshot":
						w.receive(t, stripehook.Config{}, snapshot())
					case "thin":
						w.receive(t, stripehook.Config{}, thin())
					default:
						w.once(t, b)
					}
				}
				if runs := w.took(); len(runs) != 1 {
					t.Errorf("%d runs, want 1", len(runs))
				}
				w.wantEffects(t, 1)
				w.wantLetters(t)
			})
		})
	}
}

// R7: two events of one change, for a consumer that wants the alias.
func TestObjectAliasParksASecondEvent(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		twin := event(2, time.Minute)
		twin.Object = "in_1"
		w.receive(t, stripehook.Config{ObjectAlias: true}, event(1, time.Minute))
		w.receive(t, stripehook.Config{ObjectAlias: true}, twin)
		w.wantEffects(t, 1)
		w.wantLetters(t, "evt_00002 "+string(observe.CauseKnownContent))
	})
}
