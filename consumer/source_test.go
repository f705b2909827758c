package consumer_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// sourced is a store that records the registered sources.
type sourced struct {
	*consumertest.Store
	registered []string // windows and sources, in order
}

func (s *sourced) RegisterSources(ctx context.Context, name string, sources []string) error {
	err := s.Store.RegisterSources(ctx, name, sources)
	if err == nil {
		s.registered = append(s.registered, sources...)
	}
	return err
}

func (s *sourced) Register(ctx context.Context, name string, window time.Duration) error {
	err := s.Store.Register(ctx, name, window)
	if err == nil {
		s.registered = append(s.registered, "window")
	}
	return err
}

// Two services use one name on one database: each would handle some messages and take the others for duplicates.
func TestOneNameInTwoServices(t *testing.T) {
	db := deduptest.NewDatabase()
	service := func(sources ...string) (*consumer.Consumer[tx], *sourced) {
		store := &sourced{Store: consumertest.NewStoreOn(db)}
		c := newConsumer(t, config{Store: store})
		for _, s := range sources {
			c.AddSource(s)
		}
		return c, store
	}

	orders, store := service("sqs queue orders")
	if err := orders.Start(t.Context()); err != nil || !slices.Equal(store.registered,
		[]string{"sqs queue orders", "window"}) {
		t.Fatalf("Start = %v, registered %q", err, store.registered)
	}
	refunds, store := service("sqs queue refunds")
	err := refunds.Start(t.Context())
	if !errors.Is(err, dedup.ErrNameTaken) || !strings.Contains(err.Error(), "orders") || !strings.Contains(err.Error(),
		"refunds") {
		t.Errorf("Start = %v, want ErrNameTaken and both sources named", err)
	}
	if len(store.registered) != 0 {
		t.Errorf("a start that was refused has registered %q", store.registered)
	}
	if err := refunds.ProcessBatch(t.Context(), []*consumer.Message{msg("1", "")})[0]; err == nil ||
		db.Count("1") != 0 {
		t.Errorf("a consumer that was refused handles messages: %v, %d effects", err, db.Count("1"))
	}

	both, store := service("sqs queue refunds", "sqs queue orders") // the queue is about to move
	if err := both.Start(t.Context()); err != nil || !slices.Contains(store.registered, "sqs queue refunds") {
		t.Errorf("Start of one that has both = %v, registered %q", err, store.registered)
	}
	if err := refunds.Start(t.Context()); err != nil {
		t.Errorf("Start after a release that had both = %v", err)
	}
	process(t, refunds, msg("1", ""))
	wantCount(t, db, "1", 1)

	refunds.AddSource("sqs queue late") // while it runs
	process(t, refunds, msg("2", ""))
	if again, store := service("sqs queue late"); again.Start(t.Context()) != nil || len(store.registered) != 2 {
		t.Errorf("a source that was added while running is not recorded: %q", store.registered)
	}
}
