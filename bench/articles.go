package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
)

// needsRedis refuses the section before anything is measured.
func needsRedis(ctx context.Context) error {
	client, err := openRedis()
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("the section articles needs a Redis server, and TXONCE_REDIS (.services/env has it) does not answer: make services-up S=redis starts one: %w", err)
	}
	return nil
}

func openRedis() (*redis.Client, error) {
	address := os.Getenv("TXONCE_REDIS")
	if address == "" {
		return nil, errors.New("the section articles needs a Redis server: make services-up S=redis starts one, and .services/env has its address in TXONCE_REDIS")
	}
	return redis.NewClient(&redis.Options{Addr: address}), nil
}

// articles measures what articles about idempotency advise, beside claims alone: docs/from-the-articles.md.
func (b *bench) articles(ctx context.Context) error {
	if err := b.inFront(ctx); err != nil {
		return err
	}
	if err := b.shards(ctx); err != nil {
		return err
	}
	return b.regions(ctx)
}

// front is something that is asked before the claim. It reports whether the message is a duplicate; if it is not, done is
// called after COMMIT.
type front struct {
	name string
	ask  func(ctx context.Context, id string) (duplicate bool, err error)
	done func(ctx context.Context, id string) error
}

// inFront measures messages of which some were handled before, with something in front of claims.
func (b *bench) inFront(ctx context.Context) error {
	client, err := openRedis()
	if err != nil {
		return err
	}
	defer client.Close()
	const conns = 8
	t := b.report.table("articles-front", "messages/s")
	for _, share := range []struct {
		name       string
		duplicates int64 // of 100 messages
	}{{"all new", 0}, {"half duplicates", 50}, {"99 % duplicates", 99}} {
		b.progress("articles, %s", share.name)
		err := b.server.inWorld(ctx, conns, false, func(ctx context.Context, w *world) error {
			c, err := w.inMemory()
			if err != nil {
				return err
			}
			batches, err := w.handled(ctx, c)
			if err != nil {
				return err
			}
			var old []string
			for _, msgs := range batches {
				for _, m := range msgs {
					old = append(old, m.ID)
				}
			}
			fronts, err := w.fronts(ctx, client, old)
			if err != nil {
				return err
			}
			hs := make([]*handling, len(fronts))
			var n atomic.Int64
			for i, f := range fronts {
				h := &handling{name: f.name}
				if i > 0 {
					h.base = fronts[0].name
				}
				h.measure = func(ctx context.Context) (float64, error) {
					return rate(ctx, conns, b.size.slot, func(ctx context.Context) (int, error) {
						turn := n.Add(1)
						if (turn*37)%100 < share.duplicates {
							return 1, f.handle(ctx, c.plain, old[turn%int64(len(old))])
						}
						err := f.handle(ctx, c.plain, h.id())
						if err == nil {
							h.handled.Add(1)
						}
						return 1, err
					})
				}
				hs[i] = h
			}
			return b.compare(ctx, w, t, condition{name: share.name}, b.size.slot, b.size.rounds, hs)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", share.name, err)
		}
	}
	return nil
}

func (f *front) handle(ctx context.Context, c *consumer.Consumer[pgx.Tx], id string) error {
	if f.ask != nil {
		if duplicate, err := f.ask(ctx, id); err != nil || duplicate {
			return err
		}
	}
	if err := c.Process(ctx, message(id)); err != nil || f.done == nil {
		return err
	}
	return f.done(ctx, id)
}

// fronts are those that articles advise. They know the messages that were handled before.
func (w *world) fronts(ctx context.Context, client *redis.Client, old []string) ([]front, error) {
	const ttl = time.Hour
	cached, locked := w.schema+":cached:", w.schema+":locked:"
	filter := newBloom(1 << 26)
	for _, id := range old {
		filter.add(id)
		for _, prefix := range []string{cached, locked} {
			if err := client.Set(ctx, prefix+id, "done", ttl).Err(); err != nil {
				return nil, err
			}
		}
	}
	return []front{
		{name: "claims alone"},
		{
			name: "a cache in Redis in front",
			ask: func(ctx context.Context, id string) (bool, error) {
				n, err := client.Exists(ctx, cached+id).Result()
				return n == 1, err
			},
			done: func(ctx context.Context, id string) error { return client.Set(ctx, cached+id, "done", ttl).Err() },
		},
		{
			name: "a lock in Redis in front",
			ask: func(ctx context.Context, id string) (bool, error) {
				first, err := client.SetNX(ctx, locked+id, "running", ttl).Result()
				if err != nil || first {
					return false, err
				}
				state, err := client.Get(ctx, locked+id).Result()
				return state == "done", err
			},
			done: func(ctx context.Context, id string) error { return client.Set(ctx, locked+id, "done", ttl).Err() },
		},
		{
			name: "a SELECT in front",
			ask: func(ctx context.Context, id string) (found bool, err error) {
				key := dedup.Key{Consumer: "plain", ID: id}.Hash()
				err = w.pool.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM processed_messages WHERE key = $1)`, key).Scan(&found)
				return found, err
			},
		},
		{
			// "Surely new" must be claimed all the same, and so must "perhaps a duplicate": the answer decides nothing.
			name: "a bloom filter in front",
			ask: func(_ context.Context, id string) (bool, error) {
				filter.has(id)
				return false, nil
			},
			done: func(_ context.Context, id string) error { filter.add(id); return nil },
		},
	}, nil
}

// bloom is a bloom filter with four hashes.
type bloom struct {
	mu   sync.RWMutex
	bits []uint64
}

func newBloom(bits int) *bloom { return &bloom{bits: make([]uint64, bits/64)} }

func (f *bloom) places(id string) (places [4]uint64) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	sum := h.Sum64()
	for i := range places {
		places[i] = (sum + uint64(i)*(sum>>33|1)) % uint64(len(f.bits)*64)
	}
	return places
}

func (f *bloom) add(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, place := range f.places(id) {
		f.bits[place/64] |= 1 << (place % 64)
	}
}

func (f *bloom) has(id string) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, place := range f.places(id) {
		if f.bits[place/64]&(1<<(place%64)) == 0 {
			return false
		}
	}
	return true
}
