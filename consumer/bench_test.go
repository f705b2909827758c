package consumer_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
)

// nullStore does nothing, so that the benchmark measures the consumer.
type nullStore struct{}

func (nullStore) InTx(_ context.Context, recs []dedup.Record, fn func(tx, []dedup.Claim) error) error {
	claims := make([]dedup.Claim, len(recs))
	for i := range claims {
		claims[i].Verdict = dedup.First
	}
	return fn(nil, claims)
}

func (nullStore) Claim(context.Context, tx, []dedup.Record) ([]dedup.Claim, error) { return nil, nil }
func (nullStore) Forget(context.Context, tx, ...dedup.Key) error                   { return nil }
func (nullStore) Retryable(error) bool                                             { return false }

func BenchmarkOverhead(b *testing.B) {
	c := newConsumer(b, config{Store: nullStore{}, Handle: func(context.Context, tx, *consumer.Message) error { return nil }})
	b.Run("Process", func(b *testing.B) {
		b.ReportAllocs()
		m := msg("order-42", "payload of some length")
		for b.Loop() {
			_ = c.Process(b.Context(), m)
		}
	})
	b.Run("Batch100", func(b *testing.B) {
		b.ReportAllocs()
		var batch []*consumer.Message
		for i := range 100 {
			batch = append(batch, msg(fmt.Sprint(i), "payload of some length"))
		}
		for b.Loop() {
			c.ProcessBatch(b.Context(), batch)
		}
	})
}

// BenchmarkNilHooks is what a consumer without hooks pays for them.
func BenchmarkNilHooks(b *testing.B) {
	c := newConsumer(b, config{Store: nullStore{}})
	call := c.HookCaller([]*consumer.Message{msg("order-42", "x")})
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		call(ctx)
	}
}
