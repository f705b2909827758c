package calls_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/calls"
)

func TestConfigNamesTheFieldAtFault(t *testing.T) {
	for _, tt := range []struct {
		field string
		spoil func(cfg *config)
	}{
		{"Name is required", func(cfg *config) { cfg.Name = "" }},
		{"Name", func(cfg *config) { cfg.Name = strings.Repeat("x", 256) }},
		{"Store is required", func(cfg *config) { cfg.Store = nil }},
		{"Do is required", func(cfg *config) { cfg.Do = nil }},
		{"Done is required", func(cfg *config) { cfg.Done = nil }},
		{"Keeps is -1s", func(cfg *config) { cfg.Keeps = -time.Second }},
		{"Keeps is 4m10s", func(cfg *config) { cfg.Keeps = 250 * time.Second }},
		{"Settles is -1s", func(cfg *config) { cfg.Settles = -time.Second }},
		{"Timeout is -1s", func(cfg *config) { cfg.Timeout = -time.Second }},
		{"Concurrency is -1", func(cfg *config) { cfg.Concurrency = -1 }},
	} {
		cfg := validConfig()
		tt.spoil(&cfg)
		if _, err := calls.New(cfg); err == nil || !strings.HasPrefix(err.Error(), "calls: Config."+tt.field) {
			t.Errorf("New = %v, want it to name Config.%s", err, tt.field)
		}
	}
}

// The key is frozen: with another one, each call that is repeated after an upgrade would happen again.
func TestTheIdempotencyKeyIsFrozen(t *testing.T) {
	var got []string
	b := newBank(t, func(b *bank) {
		b.cfg.Do = func(_ context.Context, c calls.Call) (calls.Result, error) {
			got = append(got, c.IdempotencyKey)
			return nil, nil
		}
	})
	_, _ = b.publish("a", 0), b.publish("b", 0)
	if len(got) != 2 || got[0] == got[1] || got[0] != "5050a55b-e852-839d-ba5f-d81ccc22f78a" {
		t.Errorf("%q", got)
	}
}
