package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/testdb"
)

const twice = "% handled twice"

// shards delivers messages twice while a fourth shard is added to three. Each message goes to the shard that the routing
// names, which has claims of its own: a message whose key has moved is claimed a second time.
func (b *bench) shards(ctx context.Context) error {
	b.progress("articles, shards")
	const before, after = 3, 4
	n := 500 / b.size.backlog
	n = max(n, 100)
	return b.server.inWorlds(ctx, after, 1, func(ctx context.Context, ws []*world) error {
		shards := make([]*consumer.Consumer[pgx.Tx], after)
		for i, w := range ws {
			c, err := w.inMemory()
			if err != nil {
				return err
			}
			shards[i] = c.plain
		}
		ways, figures := []way{}, series{}
		for place, routing := range []struct {
			name string
			to   func(id string, shards int) int
		}{
			{"one database", func(string, int) int { return 0 }},
			{"hash of the key modulo the number of shards", func(id string, shards int) int { return int(score(id, 0) % uint64(shards)) }},
			{"rendezvous hashing", func(id string, shards int) (best int) {
				for i := range shards {
					if score(id, i) > score(id, best) {
						best = i
					}
				}
				return best
			}},
		} {
			for range b.size.backlogRounds {
				ids := make([]string, n)
				for i := range ids {
					ids[i] = ws[0].id(place)
				}
				for _, shardCount := range []int{before, after} {
					for _, id := range ids {
						if err := shards[routing.to(id, shardCount)].Process(ctx, message(id)); err != nil {
							return err
						}
					}
				}
				effects := 0
				for _, w := range ws {
					var rows int
					if err := w.pool.QueryRow(ctx, `SELECT count(*) FROM ledger WHERE id = ANY($1)`, ids).Scan(&rows); err != nil {
						return err
					}
					effects += rows
				}
				figures[routing.name] = append(figures[routing.name], float64(effects-n)*100/float64(n))
			}
			ways = append(ways, way{name: routing.name})
		}
		b.report.table("articles-shards", twice).add("a fourth shard is added", ways, figures)
		return nil
	})
}

// score is FNV-1a with a finalizer: without it, IDs that differ at their end have similar hashes.
func score(id string, shard int) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d/%s", shard, id)
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// regions delivers each message to one database, and again to another one, which gets the claims of the first by logical
// replication. Where both have a row, the second database keeps its own, as systems that replicate in both directions do.
func (b *bench) regions(ctx context.Context) (err error) {
	b.progress("articles, regions")
	server, err := testdb.NewPostgres(ctx, "wal_level=logical", "max_connections=50")
	if err != nil {
		return fmt.Errorf("start a PostgreSQL with logical replication: %w", err)
	}
	defer server.Close()
	pools, handlers := [2]*pgxpool.Pool{}, [2]*consumer.Consumer[pgx.Tx]{}
	admin, err := pgx.Connect(ctx, server.DSN)
	if err != nil {
		return err
	}
	defer admin.Close(context.WithoutCancel(ctx))
	for i, region := range []string{"first_region", "second_region"} {
		if _, err := admin.Exec(ctx, "CREATE DATABASE "+region); err != nil {
			return err
		}
		cfg, err := pgxpool.ParseConfig(server.DSN)
		if err != nil {
			return err
		}
		cfg.ConnConfig.Database = region
		if pools[i], err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
			return err
		}
		defer pools[i].Close()
		if handlers[i], err = regional(ctx, pools[i]); err != nil {
			return err
		}
	}
	// The slot is made first: within one server CREATE SUBSCRIPTION would wait for itself.
	for i, statements := range [][]string{
		{`CREATE PUBLICATION claims FOR TABLE processed_messages`, `SELECT pg_create_logical_replication_slot('claims', 'pgoutput')`},
		{
			`CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF EXISTS (SELECT 1 FROM public.processed_messages WHERE key = NEW.key) THEN RETURN NULL; END IF; RETURN NEW; END $$`,
			`CREATE TRIGGER keep BEFORE INSERT ON processed_messages FOR EACH ROW EXECUTE FUNCTION keep()`,
			`ALTER TABLE processed_messages ENABLE REPLICA TRIGGER keep`,
			fmt.Sprintf(`CREATE SUBSCRIPTION claims CONNECTION 'host=127.0.0.1 port=%d user=postgres dbname=first_region'
				PUBLICATION claims WITH (create_slot = false, slot_name = 'claims', copy_data = false)`, server.Port),
		},
	} {
		for _, q := range statements {
			if _, err := pools[i].Exec(ctx, q, pgx.QueryExecModeSimpleProtocol); err != nil {
				return fmt.Errorf("%s: %w", q, err)
			}
		}
	}
	if err := replicates(ctx, pools, handlers[0]); err != nil {
		return err
	}
	return b.bothRegions(ctx, pools, handlers)
}

// replicates waits until the second region has a claim of the first.
func replicates(ctx context.Context, pools [2]*pgxpool.Pool, first *consumer.Consumer[pgx.Tx]) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := first.Process(ctx, message("probe")); err != nil {
		return err
	}
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		var rows int
		if err := pools[1].QueryRow(ctx, `SELECT count(*) FROM processed_messages`).Scan(&rows); err != nil {
			return fmt.Errorf("logical replication does not begin: %w", err)
		}
		if rows > 0 {
			tick.Stop()
			return nil
		}
		<-tick.C
	}
}

func (b *bench) bothRegions(ctx context.Context, pools [2]*pgxpool.Pool, handlers [2]*consumer.Consumer[pgx.Tx]) error {
	t := b.report.table("articles-regions", twice)
	n, next := max(50/b.size.backlog, 20), 0
	for _, delay := range []struct {
		column string
		pause  time.Duration
	}{{"delivered to the other at once", 0}, {"100 ms later", 100 * time.Millisecond}} {
		figures := series{}
		for range b.size.backlogRounds {
			doubled := 0
			for range n {
				next++
				id := fmt.Sprintf("order-%d", next)
				if err := handlers[0].Process(ctx, message(id)); err != nil {
					return err
				}
				timer := time.NewTimer(delay.pause)
				<-timer.C
				if err := handlers[1].Process(ctx, message(id)); err != nil {
					return err
				}
				var rows int
				if err := pools[1].QueryRow(ctx, `SELECT count(*) FROM ledger WHERE id = $1`, id).Scan(&rows); err != nil {
					return err
				}
				doubled += rows
			}
			figures["two databases"] = append(figures["two databases"], float64(doubled)*100/float64(n))
		}
		t.add(delay.column, []way{{name: "two databases"}}, figures)
	}
	return nil
}

// regional returns the consumer of a region, with tables of its own.
func regional(ctx context.Context, pool *pgxpool.Pool) (*consumer.Consumer[pgx.Tx], error) {
	_, err := pool.Exec(ctx, `CREATE TABLE ledger (id text NOT NULL, amount bigint NOT NULL)`)
	if err := errors.Join(err, pgxstore.Migrate(ctx, pool, "")); err != nil {
		return nil, err
	}
	store, err := pgxstore.New(pgxstore.Config{Pool: pool, ClaimTimeout: 2 * time.Minute})
	if err != nil {
		return nil, err
	}
	return consumer.New(consumer.Config[pgx.Tx]{
		Name: "plain", Store: store, Key: consumer.MessageID,
		Handle: func(ctx context.Context, tx pgx.Tx, m *consumer.Message) error {
			_, err := tx.Exec(ctx, insertEffect, m.ID)
			return err
		},
	})
}
