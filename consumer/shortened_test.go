package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/observe"
)

// large returns a message that newLimited's store refuses to park as it is.
func large(id string) *consumer.Message {
	m := msg(id, "poison"+strings.Repeat("x", 1<<20))
	m.OrderingKey, m.Position, m.Headers = "", "orders/3/"+id,
		map[string]string{"trace": "abc", "txonce-shortened": "forged"}
	return m
}

// picky is a handler that fails on payloads that begin with poison.
func picky(_ context.Context, _ tx, m *consumer.Message) error {
	if strings.HasPrefix(string(m.Payload), "poison") {
		return consumer.Permanent(errPoison)
	}
	return nil
}

// A letter that the database refuses is stored with the beginning of its payload, and says so. Others are not paused.
func TestALetterThatTheDatabaseRefusesIsShortened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := consumertest.NewStore()
		store.LetterLimit = 128 << 10
		log := new(logs)
		c := newConsumer(t, config{Store: store, Handle: picky, Logger: log.logger()})
		m := large("1")
		if err := c.ProcessBatch(t.Context(), []*consumer.Message{m})[0]; err != nil {
			t.Fatal(err)
		}
		process(t, c, msg("2", "good"))
		found := letters(t, c)
		if len(found) != 1 || !strings.HasPrefix(string(m.Payload), string(found[0].Message.Payload)) ||
			len(found[0].Message.Payload) != 64<<10 ||
			found[0].Message.Headers["trace"] != "abc" || found[0].Message.Position != "orders/3/1" ||
			found[0].Cause != observe.CausePermanent {
			t.Fatalf("letters %.500v", found)
		}
		s, ok := found[0].Shortened()
		if !ok || fmt.Sprint(s.Fields) != "[payload]" || s.PayloadBytes != len(m.Payload) ||
			len(s.PayloadSHA256) != 64 || !strings.Contains(s.Refused, "131072") {
			t.Errorf("shortened %v, %+v", ok, s)
		}
		if log.lines("shortened=") != 1 {
			t.Errorf("the log does not say that the letter is shortened")
		}
		process(t, c, m) // again: the ID is that of the whole message
		if again := letters(t, c); len(again) != 1 || again[0].Times != 2 || again[0].ID != found[0].ID {
			t.Errorf("letters after another delivery: %d", len(again))
		}

		_, err := c.Replay(t.Context(), found[0], consumer.Replay{})
		if !errors.Is(err, consumer.ErrShortened) || !strings.Contains(err.Error(), `position "orders/3/1"`) ||
			!strings.Contains(err.Error(), s.PayloadSHA256) {
			t.Errorf("Replay = %v", err)
		}
		_, err = c.Replay(t.Context(), found[0], consumer.Replay{Repair: func(m *consumer.Message) error { m.Headers["a"] = "b"; return nil }})
		if !errors.Is(err, consumer.ErrShortened) {
			t.Errorf("Replay with a Repair that leaves the payload = %v", err)
		}
		ran, err := c.Replay(t.Context(), found[0], consumer.Replay{Repair: func(m *consumer.Message) error {
			if _, ok := m.Headers["txonce-shortened"]; ok {
				t.Error("the handler gets the header")
			}
			m.Payload = []byte("the whole")
			return nil
		}})
		if !ran || err != nil {
			t.Errorf("Replay with the payload = %v, %v", ran, err)
		}
		process(t, c, m)
		if left := letters(t, c); len(left) != 0 {
			t.Errorf("a late delivery of the original is no duplicate: %d letters", len(left))
		}
	})
}

// If even a short letter is refused, its message alone waits: no pause, no reject, and not one second more for others.
func TestALetterThatCannotBeStoredStopsNoOther(t *testing.T) {
	for name, change := range map[string]func(m *consumer.Message){
		"a message that is given up": func(*consumer.Message) {},
		"a suspect":                  func(m *consumer.Message) { m.Attempt = 1000 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := consumertest.NewStore()
				store.LetterLimit = 1
				log := new(logs)
				c := newConsumer(t, config{Store: store, Handle: picky, Logger: log.logger()})
				began := time.Now()
				for n := range 10 {
					m := large("1")
					change(m)
					errs := c.ProcessBatch(t.Context(), []*consumer.Message{m, msg(fmt.Sprint("good ", n), "good")})
					wantRetry(t, errs[0], true)
					if errs[1] != nil {
						t.Fatalf("the other message: %v", errs[1])
					}
				}
				if time.Since(began) != 0 {
					t.Errorf("others waited %v", time.Since(began))
				}
				if log.lines("message cannot be parked") != 10 || log.lines("the database fails") > 0 {
					t.Error("the log does not name the message, or blames the database")
				}
			})
		})
	}
}

// Long headers, keys and positions are shortened, too; texts lose what cannot be stored.
func TestALetterIsShortenedAsFarAsNecessary(t *testing.T) {
	store := consumertest.NewStore()
	store.LetterLimit = 4 << 10
	c := newConsumer(t, config{Store: store, Handle: picky})
	m := large("1")
	m.Headers["long"] = strings.Repeat("h", 100_000)
	m.OrderingKey, m.Topic, m.Position = strings.Repeat("k", 3000), "to\x00pic\xff", strings.Repeat("p", 3000)
	m.Aliases = []string{"alias"}
	process(t, c, m)
	found := letters(t, c)
	if len(found) != 1 || len(found[0].Message.Payload) != 1<<10 || found[0].Message.Topic != "to\uFFFDpic\uFFFD" ||
		len(found[0].Message.OrderingKey) != 255 ||
		found[0].Message.Headers["long"] != "" || len(found[0].AliasRecords(found[0].Record)) != 1 {
		t.Fatalf("letters %.2000v", found)
	}
	if s, _ := found[0].Shortened(); fmt.Sprint(s.Fields) != "[payload headers key topic]" ||
		s.PayloadBytes != len(m.Payload) {
		t.Errorf("shortened %+v", s)
	}
}
