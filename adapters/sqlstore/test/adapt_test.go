package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/sqlstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	dedupdriver "github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/test/matrix"
	"github.com/txonce/txonce/internal/test/testdb"
	"github.com/txonce/txonce/outbox"
	"github.com/txonce/txonce/outbox/outboxtest"
)

// appTx is a transaction type as an application may define it. Tests with real libraries are in adapt/.
type appTx struct{ tx *sql.Tx }

func wrapApp(_ context.Context, tx *sql.Tx) (*appTx, error) { return &appTx{tx}, nil }

func unwrapApp(tx *appTx) *sql.Tx { return tx.tx }

func adapt(t testing.TB, s *sqlstore.Store) *sqlstore.Adapted[*appTx] {
	t.Helper()
	adapted, err := sqlstore.Adapt(s, wrapApp, unwrapApp)
	if err != nil {
		t.Fatal(err)
	}
	return adapted
}

// Each case of the suite runs on SQLite or on PostgreSQL, because all cases also run on both without Adapt.
func TestAdaptedSQLite(t *testing.T) {
	t.Parallel()
	h := sqliteHarness()
	deduptest.TestStore(t, deduptest.Harness[*appTx]{
		New: func(t *testing.T) deduptest.DB[*appTx] { return adaptDB(h.New(t)) },
		Select: func(name, _ string) bool {
			_, doesNotApply := h.DoesNotApply[name]
			return matrix.All() || !doesNotApply && matrix.Dealt(name, 0, 2)
		},
		OneWriter: h.OneWriter, Codes: h.Codes, DoesNotApply: h.DoesNotApply,
	})
}

func TestAdaptedPostgres(t *testing.T) {
	t.Parallel()
	onSQLite := sqliteHarness()
	deduptest.TestStore(t, deduptest.Harness[*appTx]{
		New: func(t *testing.T) deduptest.DB[*appTx] { return adaptDB(newPostgresDB(t, testdb.Postgres(t))) },
		Select: func(name, _ string) bool {
			_, notThere := onSQLite.DoesNotApply[name]
			return notThere || matrix.Dealt(name, 1, 2)
		},
		Codes: deduptest.PostgresCodes(),
	})
}

// adaptedNode is an Adapted that gives the suite access to its pool.
type adaptedNode struct {
	*sqlstore.Adapted[*appTx]
	node *node
}

// adaptDB wraps a database under test so that its stores are adapted.
func adaptDB(d deduptest.DB[*sql.Tx]) deduptest.DB[*appTx] {
	adapted := func(t *testing.T, s dedup.Store[*sql.Tx]) dedup.Store[*appTx] {
		n := s.(*node)
		return &adaptedNode{adapt(t, n.Store), n}
	}
	opened := func(open func(*testing.T) dedup.Store[*sql.Tx]) func(*testing.T) dedup.Store[*appTx] {
		return func(t *testing.T) dedup.Store[*appTx] { return adapted(t, open(t)) }
	}
	all := deduptest.DB[*appTx]{
		Open: func(t *testing.T, o deduptest.Options) dedup.Store[*appTx] { return adapted(t, d.Open(t, o)) },
		Tx: func(ctx context.Context, o deduptest.Options, fn func(*appTx) error) error {
			return d.Tx(ctx, o, func(tx *sql.Tx) error { return fn(&appTx{tx}) })
		},
		Effect:   func(ctx context.Context, tx *appTx, name string) error { return d.Effect(ctx, tx.tx, name) },
		Effects:  d.Effects,
		SetClock: func(s dedup.Store[*appTx], now func() time.Time) { s.(*adaptedNode).node.SetClock(now) },
		Age:      d.Age,
		Raise:    func(ctx context.Context, tx *appTx, code string) error { return d.Raise(ctx, tx.tx, code) },
		LockWait: func(ctx context.Context, tx *appTx) (string, error) { return d.LockWait(ctx, tx.tx) },
		Wrote:    func(ctx context.Context, tx *appTx) (bool, error) { return d.Wrote(ctx, tx.tx) },
		Plant:    d.Plant,

		RegisterSource: d.RegisterSource,

		Connections: func(t *testing.T, s dedup.Store[*appTx]) int {
			return d.Connections(t, s.(*adaptedNode).node)
		},
		NoSchema: opened(d.NoSchema), OldSchema: opened(d.OldSchema), NewerSchema: opened(d.NewerSchema),
		NotDurable: opened(d.NotDurable),
	}
	for _, m := range d.Misuse {
		all.Misuse = append(all.Misuse, deduptest.Misuse[*appTx]{
			Name: m.Name, Ends: m.Ends, Reported: m.Reported,
			Do: func(ctx context.Context, tx *appTx) error { return m.Do(ctx, tx.tx) },
		})
	}
	if d.RaiseAtCommit != nil {
		all.RaiseAtCommit = func(ctx context.Context, tx *appTx,
			code string,
		) error {
			return d.RaiseAtCommit(ctx, tx.tx, code)
		}
	}
	if d.Lock != nil {
		all.Lock = func(ctx context.Context, tx *appTx, name string) error { return d.Lock(ctx, tx.tx, name) }
	}
	if d.Faulty != nil {
		all.Faulty = func(t *testing.T, o deduptest.Options, f deduptest.Fault) dedup.Store[*appTx] {
			return adapted(t, d.Faulty(t, o, f))
		}
	}
	return all
}

func TestAdaptedOutbox(t *testing.T) {
	t.Parallel()
	outboxtest.TestStore(t, outboxtest.Harness[*appTx]{
		// TestOutboxPostgres runs all on the Store below
		Select: func(name string) bool { return matrix.Dealt(name, 0, 2) },
		New: func(t *testing.T, o outboxtest.Options) outboxtest.Outbox[*appTx] {
			d := openPostgres(t, testdb.Postgres(t))
			n := newNode(t, openDB(t, "pgx", d.dsn), sqlstore.Config{
				Dialect: sqlstore.Postgres, Outbox: sqlstore.OutboxConfig{KeepSent: o.KeepSent},
			})
			plain, l := outboxOf(n), adapt(t, n.Store)
			return outboxtest.Outbox[*appTx]{
				Writer: l, Queue: l, Operations: l.Outbox(),
				InTx: func(ctx context.Context, fn func(*appTx) error) error {
					return l.InTx(ctx, nil, func(tx *appTx, _ []dedup.Claim) error { return fn(tx) })
				},
				Retryable: l.Retryable, LockOrderingKey: l.LockOrderingKey, Sent: plain.Sent, Age: plain.Age,
				SetBack: plain.SetBack,
			}
		},
		TTL: time.Second, // Renew waits for a disk
		Run: sideBySide,
	})
}

// Each method of Store that takes a *sql.Tx must exist on Adapted with the adapted type.
func TestAdaptedHidesNothing(t *testing.T) {
	own := reflect.TypeFor[*sql.Tx]()
	mentions := func(f reflect.Type, tx reflect.Type) bool {
		for i := range f.NumIn() {
			in := f.In(i)
			if in == tx {
				return true
			}
			if in.Kind() == reflect.Func {
				for j := range in.NumIn() {
					if in.In(j) == tx {
						return true
					}
				}
			}
		}
		return false
	}
	store, adapted := reflect.TypeFor[*sqlstore.Store](), reflect.TypeFor[*sqlstore.Adapted[*appTx]]()
	for m := range store.NumMethod() {
		method := store.Method(m)
		l, there := adapted.MethodByName(method.Name)
		switch {
		case !there:
			t.Errorf("Adapted has no %s", method.Name)
		case mentions(l.Type, own):
			t.Errorf("Adapted.%s takes the Store's transaction: %v", method.Name, l.Type)
		case mentions(method.Type, own) && !mentions(l.Type, reflect.TypeFor[*appTx]()):
			t.Errorf("Adapted.%s takes no transaction: %v", method.Name, l.Type)
		}
	}
	var s any = adapt(t, new(sqlstore.Store))
	if _, ok := s.(driver.ParkingLot[*appTx]); !ok {
		t.Error("Adapted is no ParkingLot")
	}
	if _, ok := s.(dedupdriver.ResultStore[*appTx]); !ok {
		t.Error("Adapted is no ResultStore")
	}
}

func TestAdaptNamesWhatIsMissing(t *testing.T) {
	s := new(sqlstore.Store)
	for want, err := range map[string]error{
		"Store": second(sqlstore.Adapt(nil, wrapApp, unwrapApp)), "unwrap is": second(sqlstore.Adapt(s, wrapApp, nil)),
		"wrap is": second(sqlstore.Adapt(s, nil, unwrapApp)),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Adapt without %s: %v", want, err)
		}
	}
}

func second(_ *sqlstore.Adapted[*appTx], err error) error { return err }

// If wrap returns another transaction than the claim's, the handler must not run: its effects would not commit with the
// claim.
func TestAdaptRefusesAnotherTransaction(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db fixture) {
		n := db.open(deduptest.Options{})
		broken := errors.New("no connection")
		for name, test := range map[string]struct {
			wrap   func(context.Context, *sql.Tx) (*appTx, error)
			unwrap func(*appTx) *sql.Tx
			is     error
		}{
			"another one": {
				func(context.Context, *sql.Tx) (*appTx, error) { return &appTx{new(sql.Tx)}, nil },
				unwrapApp, nil,
			},
			"none":     {wrapApp, func(*appTx) *sql.Tx { return nil }, nil},
			"an error": {func(context.Context, *sql.Tx) (*appTx, error) { return nil, broken }, unwrapApp, broken},
		} {
			l, err := sqlstore.Adapt(n.Store, test.wrap, test.unwrap)
			if err != nil {
				t.Fatal(err)
			}
			err = l.InTx(t.Context(), []dedup.Record{record("k")}, func(*appTx, []dedup.Claim) error {
				t.Errorf("%s: the handler ran", name)
				return nil
			})
			if err == nil || !l.Retryable(err) || test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("%s: %v, retryable %v", name, err, l.Retryable(err))
			}
		}
		if c := claim(t, n, record("k")); c[0].Verdict != dedup.First {
			t.Errorf("a transaction that was refused has claimed: %v", c[0].Verdict)
		}

		nothing := adapt(t, n.Store)
		ctx, none := t.Context(), new(appTx)
		for name, do := range map[string]func() error{
			"Claim":           func() error { _, err := nothing.Claim(ctx, none, []dedup.Record{record("l")}); return err },
			"Forget":          func() error { return nothing.Forget(ctx, none, record("k").Key) },
			"Newer":           func() error { _, err := nothing.Newer(ctx, none, "o", 1); return err },
			"SaveResult":      func() error { return nothing.SaveResult(ctx, none, record("k").Key, nil) },
			"Enqueue":         func() error { return nothing.Enqueue(ctx, none, outbox.Message{ID: "1", Topic: "t"}) },
			"LockOrderingKey": func() error { return nothing.LockOrderingKey(ctx, none, "k") },
			"LockKeys":        func() error { return nothing.LockKeys(ctx, none, record("k").Key) },
			"Park":            func() error { return nothing.Park(ctx, none, consumer.DeadLetter{}) },
			"TakeDeadLetter":  func() error { return nothing.TakeDeadLetter(ctx, none, consumer.DeadLetter{}) },
		} {
			if err := do(); err == nil || !strings.Contains(err.Error(), "no *sql.Tx") {
				t.Errorf("%s outside of a transaction: %v", name, err)
			}
		}
	})
}
