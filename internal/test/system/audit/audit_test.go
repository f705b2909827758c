package audit_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops/audit"
	"github.com/txonce/txonce/internal/test/matrix"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/migrations"
)

const (
	effects = `SELECT id, count(*) FROM ledger WHERE id IN (:ids) GROUP BY id`
	reverse = `SELECT id FROM ledger`
)

// world is a consumer whose effects are rows of a ledger.
type world struct {
	db       *sql.DB
	dialect  sqlstore.Dialect
	consumer *consumer.Consumer[*sql.Tx]
}

// each runs f on each kind of database.
func each(t *testing.T, f func(t *testing.T, w *world)) {
	onMySQL := func(t *testing.T) (sqlstore.Dialect, string, string) { return sqlstore.MySQL, "mysql", testdb.MySQL(t) }
	for name, open := range map[string]func(t *testing.T) (sqlstore.Dialect, string, string){
		"postgres": func(t *testing.T) (sqlstore.Dialect, string, string) {
			return sqlstore.Postgres, "pgx", testdb.Schema(t, testdb.Postgres(t))
		},
		"mariadb": onMySQL,
		"mysql":   onMySQL,
		"sqlite": func(t *testing.T) (sqlstore.Dialect, string, string) {
			return sqlstore.SQLite, "sqlite", "file:" + t.TempDir() +
				"/test.db?_pragma=busy_timeout(60000)&_pragma=journal_mode(wal)"
		},
	} {
		if !matrix.RunsOn(name, t.Name()) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dialect, driver, dsn := open(t)
			db, err := sql.Open(driver, dsn)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			db.SetMaxOpenConns(8)
			if err := migrations.Apply(t.Context(), db, string(dialect), ""); err != nil {
				t.Fatal(err)
			}
			w := &world{db: db, dialect: dialect}
			w.exec(t, `CREATE TABLE ledger (id varchar(100) NOT NULL)`)
			w.exec(t, `CREATE INDEX ledger_id ON ledger (id)`)
			store, err := sqlstore.New(sqlstore.Config{DB: db, Dialect: dialect, ClaimTimeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			w.consumer, err = consumer.New(consumer.Config[*sql.Tx]{
				Name: "billing", Store: store, Key: consumer.MessageID, Logger: slog.New(slog.DiscardHandler),
				Handle: w.handle,
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(w.consumer.Close)
			f(t, w)
		})
	}
}

func (w *world) handle(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
	if string(m.Payload) == "broken" {
		return consumer.Permanent(errors.New("broken"))
	}
	q := `INSERT INTO ledger VALUES (?)`
	if w.dialect == sqlstore.Postgres {
		q = `INSERT INTO ledger VALUES ($1)`
	}
	_, err := tx.ExecContext(ctx, q, m.ID)
	return err
}

func (w *world) exec(t *testing.T, q string) {
	t.Helper()
	if _, err := w.db.ExecContext(t.Context(), q); err != nil {
		t.Fatalf("%s: %v", q, err)
	}
}

func message(id string) *consumer.Message {
	return &consumer.Message{
		ID: id, Topic: "orders", Position: "orders/0/" + id, Payload: []byte("x"),
		Time: time.Now(),
	}
}

func (w *world) process(t *testing.T, n int) (msgs []*consumer.Message) {
	t.Helper()
	for i := range n {
		msgs = append(msgs, message(fmt.Sprintf("order-%d", i)))
	}
	for part := range slices.Chunk(msgs, 500) {
		for _, err := range w.consumer.ProcessBatch(t.Context(), part) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return msgs
}

func (w *world) config() audit.Config {
	return audit.Config{DB: w.db, Dialect: string(w.dialect), Consumer: "billing", Effects: effects, Reverse: reverse}
}

func keys(r audit.Report, kind audit.Kind) (ids []string) {
	for _, f := range r.Findings {
		if f.Kind == kind {
			ids = append(ids, f.Key.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// Planted faults among several pages of claims are found, and nothing else is.
func TestPlantedFaults(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		w.process(t, 3500)
		r, err := audit.Claims(t.Context(), w.config())
		if err != nil || r.Checked != 3500 || r.Faults() != 0 || !r.Whole {
			t.Fatalf("without faults: %+v, %v", r, err)
		}
		w.exec(t, `DELETE FROM ledger WHERE id IN ('order-7', 'order-3499')`)
		w.exec(t, `INSERT INTO ledger VALUES ('order-1000')`)
		w.exec(t, `INSERT INTO ledger VALUES ('stranger')`)
		r, err = audit.Claims(t.Context(), w.config())
		if err != nil || r.Checked != 3500 || r.Lost != 2 || r.Doubled != 1 {
			t.Errorf("claims: %+v, %v", r, err)
		}
		if lost, doubled := keys(r, audit.Lost), keys(r, audit.Doubled); !slices.Equal(lost,
			[]string{"order-3499", "order-7"}) || !slices.Equal(doubled, []string{"order-1000"}) {
			t.Errorf("lost %q, doubled %q", lost, doubled)
		}
		r, err = audit.Effects(t.Context(), w.config())
		if err != nil || r.Checked != 3500 || r.Orphaned != 1 || !slices.Equal(keys(r, audit.Orphaned),
			[]string{"stranger"}) || !r.Whole {
			t.Errorf("effects: %+v, %v", r, err)
		}
	})
}

// A sample compares as many as it should, and says that it is a sample.
func TestSample(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		w.process(t, 3500)
		cfg := w.config()
		cfg.Sample = 1200
		r, err := audit.Claims(t.Context(), cfg)
		if err != nil || r.Checked != 1200 || r.Whole || !strings.Contains(r.Bound(), "fewer than 1 in 400") {
			t.Errorf("%+v, %v: %s", r, err, r.Bound())
		}
		cfg.Sample = 3500
		if r, err = audit.Claims(t.Context(), cfg); err != nil || r.Checked != 3500 || !r.Whole {
			t.Errorf("a sample of all: %+v, %v", r, err)
		}
		w.exec(t, `DELETE FROM ledger`)
		if r, err = audit.Claims(t.Context(), cfg); err != nil || r.Lost != 3500 ||
			len(r.Findings) != audit.MaxFindings {
			t.Errorf("without effects: %d lost, %d findings, %v", r.Lost, len(r.Findings), err)
		}
	})
}

// A walk that begins behind the last claim goes on from the first one.
func TestSmallSample(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		w.process(t, 3)
		cfg := w.config()
		cfg.Sample = 2
		for range 100 {
			if r, err := audit.Claims(t.Context(), cfg); err != nil || r.Checked != 2 {
				t.Fatalf("%d of 3 claims compared, want 2: %+v, %v", r.Checked, r, err)
			}
		}
	})
}

// While workers process, no claim is without its effect, and no effect without its claim.
func TestNoFalseFindingUnderLoad(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		var workers sync.WaitGroup
		for n := range 3 {
			workers.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					msgs := []*consumer.Message{
						message(fmt.Sprintf("w%d-%d", n, 2*i)),
						message(fmt.Sprintf("w%d-%d", n, 2*i+1)),
					}
					for _, err := range w.consumer.ProcessBatch(ctx, msgs) {
						if err != nil && ctx.Err() == nil {
							t.Error(err)
						}
					}
				}
			})
		}
		checked := 0
		for pass := 0; ctx.Err() == nil && (pass < 10 || checked < 1000); pass++ {
			for _, compare := range []func(context.Context, audit.Config) (audit.Report,
				error){audit.Claims, audit.Effects} {
				r, err := compare(t.Context(), w.config())
				if err != nil || r.Faults() != 0 {
					t.Errorf("%+v, %v", r, err)
				}
				checked += r.Checked
			}
		}
		cancel()
		workers.Wait()
		if checked < 1000 {
			t.Errorf("%d were compared", checked)
		}
	})
}

// source returns all messages at once.
type source struct{ msgs []*consumer.Message }

func (s *source) Next(context.Context) ([]*consumer.Message, error) {
	msgs := s.msgs
	s.msgs = nil
	return msgs, nil
}

func aMinuteAgo(context.Context) (time.Time, error) { return time.Now().Add(-time.Minute), nil }

// A message whose claim expires and is deleted during the audit is not lost.
func TestMessagesWhoseClaimsAreSwept(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		old := w.process(t, 3)
		swept := time.Now()
		horizons := []time.Time{{}, swept} // before and after the sweep
		for _, m := range old {
			m.Time = swept.Add(-time.Second)
		}
		sweep := `DELETE FROM processed_messages`
		if w.dialect == sqlstore.Postgres {
			sweep = testdb.Unguarded(sweep)
		}
		w.exec(t, sweep)
		r, err := audit.Messages(t.Context(), w.config(), audit.MessagesConfig{
			Source: &source{append(old, message("never"))}, Key: consumer.MessageID,
			Horizon: func(context.Context) (at time.Time, err error) {
				at, horizons = horizons[0], horizons[1:]
				return at, nil
			},
		})
		if err != nil || r.Checked != 1 || r.Skipped != 3 || r.Lost != 1 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// A message that is neither claimed nor parked is lost.
func TestMessages(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		msgs := w.process(t, 1500)
		parked := message("parked")
		parked.Payload = []byte("broken")
		if err := w.consumer.Process(t.Context(), parked); err != nil {
			t.Fatal(err)
		}
		old := message("old")
		old.Time = time.Now().Add(-time.Hour)
		all := append(msgs, parked, message(""), old, message("never"))
		cfg := w.config()
		cfg.Sample = 2000 // more than there are
		r, err := audit.Messages(t.Context(), cfg, audit.MessagesConfig{
			Source: &source{all}, Key: consumer.MessageID,
			Horizon: aMinuteAgo,
		})
		if err != nil || r.Checked != 1502 || r.Skipped != 2 || r.Lost != 1 || !r.Whole {
			t.Errorf("%+v, %v; want all messages read, so that it is no sample", r, err)
		}
		if len(r.Findings) != 1 || r.Findings[0].Key.ID != "never" || r.Findings[0].Where != "orders/0/never" {
			t.Errorf("%+v", r.Findings)
		}
	})
}

func TestConfig(t *testing.T) {
	good := audit.Config{DB: new(sql.DB), Dialect: "sqlite", Consumer: "billing"}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(c *audit.Config){
		"DB":       func(c *audit.Config) { c.DB = nil },
		"Dialect":  func(c *audit.Config) { c.Dialect = "oracle" },
		"Consumer": func(c *audit.Config) { c.Consumer = "" },
		"Effects":  func(c *audit.Config) { c.Effects = "SELECT 1" },
		"Sample":   func(c *audit.Config) { c.Sample = -1 },
		"Rate":     func(c *audit.Config) { c.Rate = -1 },
		"Expect":   func(c *audit.Config) { c.Expect = "two" },
	} {
		c := good
		if spoil(&c); c.Validate() == nil || !strings.Contains(c.Validate().Error(), "Config."+name) {
			t.Errorf("%s: %v", name, c.Validate())
		}
	}
}
