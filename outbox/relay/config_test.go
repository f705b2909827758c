package relay_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

func TestRelayConfigNamesTheFieldAtFault(t *testing.T) {
	good := relay.Config{Queue: outboxtest.NewMemory(), Publisher: new(outboxtest.FakePublisher)}
	if _, err := relay.New(good); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		field string
		spoil func(cfg *relay.Config)
	}{
		{"Queue is required", func(cfg *relay.Config) { cfg.Queue = nil }},
		{"Publisher is required", func(cfg *relay.Config) { cfg.Publisher = nil }},
		{"Publisher is a nil *outboxtest.FakePublisher", func(cfg *relay.Config) { cfg.Publisher = (*outboxtest.FakePublisher)(nil) }},
		{"Publishers names an empty topic", func(cfg *relay.Config) { cfg.Publishers = map[string]outbox.Publisher{"": cfg.Publisher} }},
		{`Publishers["x"] is nil`, func(cfg *relay.Config) { cfg.Publishers = map[string]outbox.Publisher{"x": nil} }},
		{"Name", func(cfg *relay.Config) { cfg.Name = strings.Repeat("x", 256) }},
		{"Name", func(cfg *relay.Config) { cfg.Name = "a\x00b" }},
		{"BatchSize is -1", func(cfg *relay.Config) { cfg.BatchSize = -1 }},
		{"BatchBytes is -1", func(cfg *relay.Config) { cfg.BatchBytes = -1 }},
		{"Workers is -1", func(cfg *relay.Config) { cfg.Workers = -1 }},
		{"LeaseTTL is 99ms", func(cfg *relay.Config) { cfg.LeaseTTL = 99 * time.Millisecond }},
		{"LeaseTTL is -1s", func(cfg *relay.Config) { cfg.LeaseTTL = -time.Second }},
		{"Margin is -1s", func(cfg *relay.Config) { cfg.Margin = -time.Second }},
		{"Margin is 6s", func(cfg *relay.Config) { cfg.LeaseTTL, cfg.Margin = 10*time.Second, 6*time.Second }},
		{"PublishTimeout is -1s", func(cfg *relay.Config) { cfg.PublishTimeout = -time.Second }},
		{"MaxAttempts is -1", func(cfg *relay.Config) { cfg.MaxAttempts = -1 }},
		{"ParkPolicy is 3", func(cfg *relay.Config) { cfg.ParkPolicy = 3 }},
		{"ParkPolicy is -1", func(cfg *relay.Config) { cfg.ParkPolicy = -1 }},
		{"PollMin is -1s", func(cfg *relay.Config) { cfg.PollMin = -time.Second }},
		{"PollMax is 1ms", func(cfg *relay.Config) { cfg.PollMax = time.Millisecond }},
	} {
		t.Run(test.field, func(t *testing.T) {
			cfg := good
			test.spoil(&cfg)
			if _, err := relay.New(cfg); err == nil || !strings.HasPrefix(err.Error(), "relay: Config."+test.field) {
				t.Errorf("New = %v, want it to name Config.%s", err, test.field)
			}
		})
	}
}

// A PollMin above the default of PollMax raises PollMax; a LeaseTTL below the default of PublishTimeout limits
// PublishTimeout.
func TestRelayConfigDefaultsFitTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := outboxtest.NewMemory()
		enqueueIDs(t, memory, "a1")
		var left time.Duration
		p := publisherFunc(func(ctx context.Context, _ []outbox.Message) []error {
			deadline, _ := ctx.Deadline()
			left = time.Until(deadline)
			return nil
		})
		r := newRelay(t, relay.Config{Queue: memory, Publisher: p, LeaseTTL: time.Second, PollMin: time.Minute})
		if n, err := r.RunOnce(t.Context()); n != 1 || err != nil || left != 800*time.Millisecond {
			t.Errorf("RunOnce = %d, %v; Publish had %v, want 4/5 of LeaseTTL", n, err, left)
		}
		enqueueIDs(t, memory, "a2")
		if _, err := newRelay(t, relay.Config{Queue: memory, Publisher: p}).RunOnce(t.Context()); err != nil ||
			left != relay.DefaultPublishTimeout {
			t.Errorf("RunOnce = %v; Publish had %v, want %v", err, left, relay.DefaultPublishTimeout)
		}
	})
}

// The default name identifies the process.
func TestRelayDefaultName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := outboxtest.NewMemory()
		_, stop := start(t, relay.Config{Queue: memory, Publisher: new(outboxtest.FakePublisher)})
		st, err := memory.Stats(t.Context())
		if err != nil || len(st.Relays) != 1 || !strings.Contains(st.Relays[0].Name, "/") {
			t.Errorf("%+v, %v: want a name of host and process id", st.Relays, err)
		}
		stop()
	})
}
