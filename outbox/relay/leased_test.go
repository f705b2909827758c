package relay_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// leasedPublisher is a driver.LeasedPublisher that answers with decide.
type leasedPublisher struct {
	decide func(driver.Leased) error
	needs  time.Duration

	mu  sync.Mutex
	got []driver.Leased
}

func (p *leasedPublisher) Publish(context.Context, []outbox.Message) []error {
	panic("Publish of a LeasedPublisher was called")
}

func (p *leasedPublisher) NeedsTime() time.Duration { return p.needs }

func (p *leasedPublisher) PublishLeased(_ context.Context, msgs []driver.Leased) (errs []error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range msgs {
		p.got = append(p.got, m)
		errs = append(errs, p.decide(m))
	}
	return errs
}

func (p *leasedPublisher) ids() (ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.got {
		ids = append(ids, m.ID)
	}
	return ids
}

func TestRelayGivesALeasedPublisherTheMessagesAsTheyAreStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, failures := outboxtest.NewMemory(), 0
		publisher := &leasedPublisher{decide: func(driver.Leased) error {
			if failures++; failures == 1 {
				return errors.New("once")
			}
			return nil
		}}
		enqueued := time.Now()
		enqueueIDs(t, memory, "a1")
		<-time.After(time.Hour)
		_, stop := start(t, relay.Config{Queue: memory, Publisher: publisher})
		<-time.After(time.Minute)
		stop()
		if diff := cmp.Diff([]string{"a1", "a1"}, publisher.ids()); diff != "" {
			t.Fatal(diff)
		}
		first, second := publisher.got[0], publisher.got[1]
		if !first.Enqueued.Equal(enqueued) || first.Attempts != 0 || second.Attempts != 1 || first.Token == 0 ||
			first.Headers[outbox.HeaderID] != "a1" {
			t.Errorf("it got %+v, then %+v", first, second)
		}
	})
}

// A DeferError holds back one message and its key. Nothing else waits, and no attempt is counted.
func TestRelayDefersOneMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, waits := outboxtest.NewMemory(), 0
		publisher := &leasedPublisher{decide: func(m driver.Leased) error {
			if m.ID == "a1" && waits < 30 {
				waits++
				return &driver.DeferError{After: time.Minute, Err: errors.New("not yet")}
			}
			return nil
		}}
		enqueueIDs(t, memory, "a1", "a2", "b1")
		_, stop := start(t, relay.Config{Queue: memory, Publisher: publisher})
		<-time.After(59 * time.Second)
		if diff := cmp.Diff([]string{"a1", "b1"}, publisher.ids()); diff != "" {
			t.Error(diff)
		}
		enqueueIDs(t, memory, "c1")
		<-time.After(40 * time.Minute)
		stop()
		if got := stats(t, memory); got != "0 pending, 0 parked, 0 waiting" || waits != 30 {
			t.Errorf("after %d waits: %s", waits, got)
		}
		if last := publisher.got[len(publisher.got)-2]; last.ID != "a1" || last.Attempts != 0 || publisher.ids()[2] != "c1" {
			t.Errorf("published %v; a1 at last with %d attempts", publisher.ids(), last.Attempts)
		}
	})
}

func TestRelayRefusesLimitsThatLeaveAPublisherNoTime(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  relay.Config
		says string
	}{
		{"enough", relay.Config{PublishTimeout: 5 * time.Second}, ""},
		{"a short PublishTimeout", relay.Config{PublishTimeout: 4 * time.Second}, "Config.PublishTimeout is 4s"},
		{"a short lease", relay.Config{LeaseTTL: 10 * time.Second}, "Config.LeaseTTL is 10s, which leaves 4.6"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.cfg.Queue = outboxtest.NewMemory()
			tt.cfg.Publishers = map[string]outbox.Publisher{"x": &leasedPublisher{needs: 5 * time.Second}}
			_, err := relay.New(tt.cfg)
			if tt.says == "" && err != nil || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) {
				t.Errorf("New = %v, want an error that says %q", err, tt.says)
			}
		})
	}
}
