package webhook_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer"
)

// TestTwinsOfASlowEvent: copies of one slow event must not take the pool from other events.
func TestTwinsOfASlowEvent(t *testing.T) {
	s, big := newShop(), postgres(t)
	cfg := big.Config()
	cfg.MaxConns = 10
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	began := make(chan struct{})
	var once sync.Once
	c := pgConsumer(t, pgStore(t, pool), func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
		if m.ID == "slow" {
			once.Do(func() { close(began) })
			<-time.After(6 * time.Second)
		}
		return insert(ctx, tx, m)
	})
	r := newReceiver(t, webhook.Config{Verifier: s, Processor: c})
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	created := time.Now()
	do(r, s.request(t.Context(), shopEvent{ID: "warm", Type: "paid", Created: created}))
	var wg sync.WaitGroup
	first := s.request(t.Context(), shopEvent{ID: "slow", Type: "paid", Created: created})
	wg.Go(func() { do(r, first) })
	<-began
	for range 50 {
		req := s.request(t.Context(), shopEvent{ID: "slow", Type: "paid", Created: created})
		wg.Go(func() { do(r, req) })
	}
	<-time.After(200 * time.Millisecond)
	for i := range 10 {
		at := time.Now()
		res := do(r, s.request(t.Context(), shopEvent{ID: "stranger" + string(rune('a'+i)), Type: "paid", Created: created}))
		t.Logf("stranger %d: %d after %v; acquired %d", i, res.StatusCode, time.Since(at), pool.Stat().AcquiredConns())
		if took := time.Since(at); res.StatusCode != http.StatusOK || took > 500*time.Millisecond {
			t.Errorf("a stranger beside 50 copies of a slow event: %d after %v", res.StatusCode, took)
		}
	}
	wg.Wait()
}
