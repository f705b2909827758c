package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox"
)

// script is what a handler does for one message.
type script struct {
	steps []string
	fault string // in the middle of the steps; empty: none
	times int    // how often it fails; many: always

	mu   sync.Mutex
	runs int
}

// scriptSteps are what handlers do. Those that change the counter must not disturb each other.
var scriptSteps = []string{
	"insert", "insert", "insert", "read", "row", "batch", "enqueue", "enqueue", "add", "for update", "lock keys",
	"advisory lock",
	"savepoint", "savepoint undone", "text savepoint undone", "copy", "conn", "set local", "semaphore", "pause",
	"named",
}

// scriptFaults are how handlers fail. None ends the transaction: then the causes of dead letters differ, see
// TestInterleaveWhenAHandlerCommits.
var scriptFaults = []string{
	"", "", "", "", "", "", "error", "permanent", "panic", "goexit", "statement", "swallowed", "rows left open", "busy",
	"ctx", "cut", "argument", "syntax",
}

func (s *stage) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now += n
	s.atMost = max(s.atMost, s.now)
}

func (s *stage) play(ctx context.Context, tx pgx.Tx, m *consumer.Message, counter string) error {
	k := s.scripts[m.ID]
	k.mu.Lock()
	k.runs++
	fails := k.runs <= k.times || k.fault == "permanent"
	k.mu.Unlock()
	for i, step := range k.steps {
		if fails && i == len(k.steps)/2 {
			if err := fault(ctx, tx, k.fault); err != nil {
				return err
			}
		}
		if err := s.step(ctx, tx, m, step, fmt.Sprint(m.ID, " ", i), counter); err != nil {
			return err
		}
	}
	return nil
}

// fault fails as name says. Some faults return nil, and the transaction must fail all the same.
func fault(ctx context.Context, tx pgx.Tx, name string) error {
	switch name {
	case "error":
		return errors.New("error of the handler")
	case "permanent":
		return consumer.Permanent(errors.New("permanent error"))
	case "panic":
		panic("panic of the handler")
	case "goexit":
		runtime.Goexit()
	case "statement":
		_, err := tx.Exec(ctx, `SELECT 1/$1::int`, 0)
		return err
	case "swallowed":
		_, _ = tx.Exec(ctx, `SELECT 1/$1::int`, 0)
	case "argument":
		_, err := tx.Exec(ctx, `SELECT $1::int`, "x")
		return err
	case "syntax":
		_, err := tx.Exec(ctx, `SELEC $1`, 1)
		return err
	case "rows left open":
		_, _ = tx.Query(ctx, `SELECT generate_series(1, $1::int)`, 3) //nolint:sqlclosecheck // the fault itself
	case "busy":
		rows, _ := tx.Query(ctx, `SELECT generate_series(1, $1::int)`, 3)
		defer rows.Close()
		_, err := tx.Exec(ctx, insertEffect, "while rows are open")
		if err != nil {
			return errors.New("busy")
		}
	case "ctx":
		short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		if _, err := tx.Exec(short, `SELECT pg_sleep($1)`, 10); err != nil {
			return errors.New("too slow")
		}
	case "cut":
		_, err := tx.Exec(ctx, `SELECT pg_terminate_backend(pg_backend_pid())`)
		return err
	}
	return nil
}

func (s *stage) step(ctx context.Context, tx pgx.Tx, m *consumer.Message, step, name, counter string) error {
	insert := func(tx pgx.Tx, name string) error {
		_, err := tx.Exec(ctx, insertEffect, name)
		return err
	}
	// add changes the counter in a way that another handler must not disturb.
	add := func() error {
		var n int
		if err := tx.QueryRow(ctx, `SELECT n FROM counters WHERE name = $1`, counter).Scan(&n); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE counters SET n = $2 WHERE name = $1`, counter, n+1)
		return err
	}
	switch step {
	case "insert":
		return insert(tx, name)
	case "named":
		_, err := tx.Exec(ctx, `INSERT INTO effects (name) VALUES (@name)`, pgx.NamedArgs{"name": name})
		return err
	case "read":
		rows, _ := tx.Query(ctx, `SELECT place, name FROM effects WHERE starts_with(name, $1) ORDER BY name`, m.ID+" ")
		type row struct {
			Place int
			Name  string
		}
		all, err := pgx.CollectRows(rows, pgx.RowToStructByName[row])
		if err != nil {
			return err
		}
		for _, r := range all {
			if !strings.HasPrefix(r.Name, m.ID+" ") {
				return fmt.Errorf("read %q", r.Name)
			}
		}
		return insert(tx, fmt.Sprint(name, " read ", len(all)))
	case "row":
		var same string
		if err := tx.QueryRow(ctx, `SELECT $1::text || ' row'`, name).Scan(&same); err != nil {
			return err
		}
		return insert(tx, same)
	case "batch":
		b := &pgx.Batch{}
		b.Queue(insertEffect, name+" in a batch")
		count := 0
		b.Queue(`SELECT count(*) FROM effects WHERE name = $1`,
			name+" in a batch").QueryRow(func(r pgx.Row) error { return r.Scan(&count) })
		b.Queue(insertEffect, name+" too").Exec(func(tag pgconn.CommandTag) error {
			if !tag.Insert() {
				return errors.New(tag.String())
			}
			return nil
		})
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		return insert(tx, fmt.Sprint(name, " of ", count))
	case "enqueue":
		return s.store.Enqueue(ctx, tx, outbox.Message{
			Topic: "done", OrderingKey: m.OrderingKey,
			Payload: []byte(name),
		})
	case "add":
		_, err := tx.Exec(ctx, `UPDATE counters SET n = n + 1 WHERE name = $1`, counter)
		return err
	case "for update":
		if _, err := tx.Exec(ctx, `SELECT FROM counters WHERE name = $1 FOR UPDATE`, counter); err != nil {
			return err
		}
		return add()
	case "lock keys":
		if err := s.store.LockKeys(ctx, tx, dedup.Key{Consumer: "counters", ID: counter}); err != nil {
			return err
		}
		return add()
	case "advisory lock":
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtext($1))`, counter); err != nil {
			return err
		}
		return add()
	case "savepoint", "savepoint undone":
		nested, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		if err := s.store.Enqueue(ctx, nested, outbox.Message{
			Topic: "done", OrderingKey: m.OrderingKey,
			Payload: []byte(name),
		}); err != nil {
			return err
		}
		if err := insert(nested, name); err != nil {
			return err
		}
		if step == "savepoint" {
			return nested.Commit(ctx)
		}
		return nested.Rollback(ctx)
	case "text savepoint undone":
		for _, sql := range []string{
			`SAVEPOINT mine`, `INSERT INTO effects (name) VALUES ('undone')`,
			`ROLLBACK TO mine`,
		} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return insert(tx, name)
	case "copy":
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"effects"}, []string{"name"},
			pgx.CopyFromRows([][]any{{name + " copied"}}))
		return err
	case "conn":
		_, err := tx.Conn().Exec(ctx, insertEffect, name+" by conn")
		return err
	case "set local":
		var found string
		if err := tx.QueryRow(ctx, `SELECT set_config('txonce.test', $1, true)`, name).Scan(&found); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, `SELECT current_setting('txonce.test')`).Scan(&found); err != nil {
			return err
		}
		return insert(tx, found+" set")
	case "semaphore": // a mutex that the handlers share; it gives up, so that a deadlock does not last forever
		select {
		case s.semaphore <- struct{}{}:
			defer func() { <-s.semaphore }()
		case <-ctx.Done():
			return ctx.Err()
		}
		return insert(tx, name+" in a semaphore")
	case "pause":
		select {
		case <-time.After(3 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil
}
