package watermilltx_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/txonce/txonce/adapters/watermilltx"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
)

func newUUID() string { return watermill.NewUUID() }

// charge is a handler with an effect and a message, both named after its order.
func charge(msg *message.Message) ([]*message.Message, error) {
	key, err := byID(watermilltx.ToMessage(msg))
	if err != nil {
		return nil, err
	}
	out := message.NewMessage(newUUID(), []byte("charged "+key))
	out.Metadata.Set(watermilltx.MetadataKey, key)
	out.Metadata.Set("correlation_id", "c")
	return []*message.Message{out}, insert(msg, key)
}

func TestEffectAndMessagesAreOne(t *testing.T) {
	var ids []string // of the same event in two databases
	eachBase(t, func(t *testing.T, b *base) {
		ran := 0
		h := newMiddleware(t, config(b, "billing")).Middleware(func(msg *message.Message) ([]*message.Message, error) {
			ran++
			return charge(msg)
		})
		for range 2 { // published twice: another UUID
			produced, err := h(order(t, "7"))
			if err != nil || len(produced) != 0 {
				t.Fatalf("%d messages are left to the Router, %v", len(produced), err)
			}
		}
		if ran != 1 {
			t.Errorf("the handler ran %d times", ran)
		}
		b.wantEffects("7")
		m := b.wantPublished(1)[0]
		ids = append(ids, m.ID)
		if m.Topic != "charges" || m.OrderingKey != "7" || string(m.Payload) != "charged 7" ||
			m.Headers["correlation_id"] != "c" {
			t.Errorf("published %q %q %q %q", m.Topic, m.OrderingKey, m.Payload, m.Headers)
		}
		if uuid := m.Headers[watermilltx.MetadataUUID]; uuid == "" || uuid == m.ID {
			t.Errorf("the handler's UUID became %q, the ID is %q", uuid, m.ID)
		}
	})
	if len(ids) == 2 && ids[0] != ids[1] {
		t.Errorf("the same event's message has ID %q the one time and %q the other", ids[0], ids[1])
	}
}

func TestFailureLeavesNothing(t *testing.T) {
	eachBase(t, func(t *testing.T, b *base) {
		for _, test := range []struct {
			name string
			fail func(msg *message.Message) error
			want string
		}{
			{"an error", func(*message.Message) error { return errors.New("not yet") }, "not yet"},
			{"a panic", func(*message.Message) error { panic("oh") }, "oh"},
			{"an SQL error", func(msg *message.Message) error {
				_, err := watermilltx.Tx[*sql.Tx](msg.Context()).ExecContext(msg.Context(),
					`INSERT INTO missing VALUES (1)`)
				return err
			}, "missing"},
			{
				"a nack without error", func(msg *message.Message) error { msg.Nack(); return nil },
				watermilltx.ErrNacked.Error(),
			},
			{"an ack before an error", func(msg *message.Message) error { msg.Ack(); return errors.New("after the ack") }, "after the ack"},
			{"a transaction of another type", func(msg *message.Message) error { watermilltx.Tx[*outboxtest.Tx](msg.Context()); return nil }, "*outboxtest.Tx"},
		} {
			t.Run(test.name, func(t *testing.T) {
				failing := true
				id := strings.ReplaceAll(test.name, " ", "-")
				cfg := config(b, "billing "+test.name)
				h := newMiddleware(t, cfg).Middleware(func(msg *message.Message) ([]*message.Message, error) {
					if err := insert(msg, id); err != nil {
						return nil, err
					}
					if failing {
						return []*message.Message{message.NewMessage(newUUID(), nil)}, test.fail(msg)
					}
					return nil, nil
				})
				raw := order(t, id)
				_, err := h(raw)
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Fatalf("error %v, want %q", err, test.want)
				}
				select {
				case <-raw.Acked():
					t.Error("the handler acked the broker's message")
				case <-raw.Nacked():
					t.Error("the handler nacked the broker's message")
				default:
				}
				if got := b.effects(); len(got) != 0 {
					t.Errorf("effects %q of a failed attempt", got)
				}
				failing = false
				if _, err := h(raw); err != nil { // as Retry does, and a redelivery
					t.Fatalf("the next attempt: %v", err)
				}
				b.wantEffects(id)
				b.exec(`DELETE FROM effects`)
			})
		}
		b.wantPublished(0)
	})
}

func TestPermanentAndExhaustedAreParked(t *testing.T) {
	eachBase(t, func(t *testing.T, b *base) {
		ran := map[string]int{}
		cured := false
		m := newMiddleware(t, config(b, "billing"))
		h := m.Middleware(func(msg *message.Message) ([]*message.Message, error) {
			key, _ := byID(watermilltx.ToMessage(msg))
			ran[key]++
			switch {
			case cured:
				return charge(msg)
			case key == "poison":
				return nil, consumer.Permanent(errors.New("never"))
			}
			return nil, errors.New("not yet")
		})
		if _, err := h(order(t, "poison")); err != nil {
			t.Fatalf("a permanent error is parked and acked: %v", err)
		}
		failing := order(t, "failing")
		for range 2 {
			_, err := h(failing.Copy()) // a redelivery, as brokers make it
			wantRetry(t, err, false)
		}
		if _, err := h(failing.Copy()); err != nil {
			t.Fatalf("the third attempt of three: %v", err)
		}
		if len(letters(t, m)) != 2 || ran["poison"] != 1 || ran["failing"] != 3 {
			t.Errorf("%d letters after %v", len(letters(t, m)), ran)
		}
		garbage := message.NewMessage(newUUID(), []byte("no JSON"))
		garbage.SetContext(t.Context())
		if _, err := h(garbage); err != nil {
			t.Errorf("garbage is parked: %v", err)
		}
		b.wantEffects()
		cured = true
		for _, l := range letters(t, m) {
			if l.Record.Key.ID == "" {
				continue
			}
			if ran, err := m.Consumer().Replay(t.Context(), l, consumer.Replay{}); !ran || err != nil {
				t.Errorf("replay: %v, %v", ran, err)
			}
		}
		b.wantEffects("failing", "poison")
		b.wantPublished(2)
		if all := letters(t, m); len(all) != 1 || all[0].Cause != observe.CauseNoKey {
			t.Errorf("letters left: %v", all)
		}
	})
}

// A mistake in the program is not the message's fault: the message is not parked because of it, and nothing of it is
// committed.
func TestProducingWhatCannotBePublished(t *testing.T) {
	b := newSQLite(t)
	for _, test := range []struct {
		name string
		set  func(*watermilltx.Config[*sql.Tx])
		want string
	}{
		{"no topic", func(c *watermilltx.Config[*sql.Tx]) { c.Topic = nil }, "topic is empty"},
		{"no outbox", func(c *watermilltx.Config[*sql.Tx]) { c.Outbox = nil }, "Config.Outbox"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := config(b, test.name)
			test.set(&cfg)
			m := newMiddleware(t, cfg)
			h := m.Middleware(charge)
			raw := order(t, "1")
			for range 5 {
				_, err := h(raw)
				wantRetry(t, err, true)
				if !strings.Contains(err.Error(), test.want) || watermilltx.IsPoison(err) {
					t.Errorf("error %v", err)
				}
			}
			b.wantEffects()
			if all := letters(t, m); len(all) != 0 {
				t.Errorf("parked: %v", all)
			}
		})
	}
}

// A handler may change its message; the next attempt gets the message as the broker sent it.
func TestHandlerGetsACopy(t *testing.T) {
	b := newSQLite(t)
	var seen []string
	h := newMiddleware(t, config(b, "billing")).Middleware(func(msg *message.Message) ([]*message.Message, error) {
		seen = append(seen, string(msg.Payload)+msg.Metadata.Get("m")+msg.UUID)
		msg.Payload[0], msg.UUID = 'X', ""
		msg.Metadata.Set("m", "changed")
		return nil, errors.New("not yet")
	})
	raw := order(t, "1")
	for range 2 {
		_, err := h(raw)
		wantRetry(t, err, false)
	}
	if len(seen) != 2 || seen[0] != seen[1] {
		t.Errorf("attempts saw %q", seen)
	}
}

// Handlers often copy the metadata of the incoming message, and a relay may have published that message.
func TestCopiedMetadata(t *testing.T) {
	b := newSQLite(t)
	h := newMiddleware(t, config(b, "billing")).Middleware(func(msg *message.Message) ([]*message.Message, error) {
		out := msg.Copy()
		out.UUID = newUUID()
		return []*message.Message{out}, nil
	})
	raw := order(t, "1")
	for _, name := range []string{outbox.HeaderID, outbox.HeaderSequence, "Txonce-other"} {
		raw.Metadata.Set(name, "of the message received")
	}
	raw.Metadata.Set("kept", "yes")
	if _, err := h(raw); err != nil {
		t.Fatal(err)
	}
	if m := b.wantPublished(1)[0]; m.Headers["kept"] != "yes" || m.ID == "of the message received" ||
		m.Headers[outbox.HeaderID] != m.ID {
		t.Errorf("published %+v", m)
	}
}

// Without a parking lot, a message that was given up must not be acked: a PoisonQueue takes it.
func TestWithoutParkingLot(t *testing.T) {
	m, err := watermilltx.New(watermilltx.Config[*deduptest.Tx]{
		Name: "billing", Store: deduptest.NewStore(), Key: byID, MaxWait: -1, RejectGivenUp: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Middleware(func(*message.Message) ([]*message.Message, error) {
		return nil, consumer.Permanent(errors.New("never"))
	})(order(t, "1"))
	if err == nil || !watermilltx.IsPoison(err) {
		t.Errorf("error %v", err)
	}
}

func TestDatabaseAwayIsNobodysFault(t *testing.T) {
	store := consumertest.NewStore()
	m, err := watermilltx.New(watermilltx.Config[*deduptest.Tx]{Name: "billing", Store: store, Key: byID, MaxWait: -1})
	if err != nil {
		t.Fatal(err)
	}
	h := m.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		return nil, watermilltx.Tx[*deduptest.Tx](msg.Context()).Add("effect")
	})
	raw := order(t, "1")
	store.Database().Stop()
	for range 10 {
		_, err := h(raw)
		wantRetry(t, err, true)
		if watermilltx.IsPoison(err) {
			t.Errorf("a database that is away makes poison: %v", err)
		}
	}
	store.Database().Start()
	if _, err := h(raw); err != nil || store.Database().Count("effect") != 1 {
		t.Errorf("%v, %d effects", err, store.Database().Count("effect"))
	}
}

func TestInstantAckIsReported(t *testing.T) {
	b := newSQLite(t)
	var log bytes.Buffer
	cfg := config(b, "billing")
	cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	raw := order(t, "1")
	raw.Ack()
	if _, err := newMiddleware(t, cfg).Middleware(charge)(raw); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "remove middleware.InstantAck") {
		t.Errorf("log: %s", &log)
	}
}

func TestTxOutsideOfAHandler(t *testing.T) {
	defer func() {
		if v := recover(); v == nil || !strings.Contains(v.(string), "behind a watermilltx.Middleware") {
			t.Errorf("panic %v", v)
		}
	}()
	watermilltx.Tx[*sql.Tx](context.Background())
}

func TestConfigRefused(t *testing.T) {
	b := newSQLite(t)
	for _, test := range []struct {
		want string
		set  func(*watermilltx.Config[*sql.Tx])
	}{
		{"Name", func(c *watermilltx.Config[*sql.Tx]) { c.Name = "" }},
		{"Store", func(c *watermilltx.Config[*sql.Tx]) { c.Store = nil }},
		{"Key", func(c *watermilltx.Config[*sql.Tx]) { c.Key = nil }},
		{"Window", func(c *watermilltx.Config[*sql.Tx]) { c.Window = 1 }},
		{"MaxAttempts", func(c *watermilltx.Config[*sql.Tx]) { c.MaxAttempts = -1 }},
		{"RejectGivenUp", func(c *watermilltx.Config[*sql.Tx]) { c.Store = struct{ dedup.Store[*sql.Tx] }{c.Store} }},
		{"Join", func(c *watermilltx.Config[*sql.Tx]) {
			c.Store, c.Join = struct{ dedup.Store[*sql.Tx] }{c.Store}, true // without its other methods
		}},
	} {
		cfg := config(b, "billing")
		test.set(&cfg)
		if _, err := watermilltx.New(cfg); err == nil || !strings.Contains(err.Error(), "watermilltx: ") ||
			!strings.Contains(err.Error(), "Config."+test.want) {
			t.Errorf("%s: error %v", test.want, err)
		}
	}
	_, err := watermilltx.New(watermilltx.Config[*deduptest.Tx]{
		Name: "billing", Store: deduptest.NewStore(), Key: byID, Join: true,
	})
	if err == nil || !strings.Contains(err.Error(), "Config.Join") {
		t.Errorf("Join of other transactions: %v", err)
	}
}
