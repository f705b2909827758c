package calls_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/calls"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/outbox"
	outboxdriver "github.com/txonce/txonce/outbox/driver"
)

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
