// Package kit is what a team shares between its services: middleware, a unit of work, repositories, events.
package kit

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/outbox"
)

// DB is what a pool and a transaction have in common.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// HandleFunc is the team's own name for a handler.
type HandleFunc = func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error

// Logged is middleware.
func Logged(next HandleFunc) HandleFunc {
	return func(ctx context.Context, tx pgx.Tx, msg *consumer.Message) error {
		err := next(ctx, tx, msg)
		slog.InfoContext(ctx, "handled", "id", msg.ID, "error", err)
		return err
	}
}

// Typed decodes, as a team's own wrapper does.
func Typed[T any](handle func(ctx context.Context, tx pgx.Tx, body T) error) consumer.Handler[pgx.Tx] {
	return consumer.JSON(handle)
}

// Savepoint runs fn in a savepoint.
func Savepoint(ctx context.Context, tx pgx.Tx, fn func(sp pgx.Tx) error) error {
	sp, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = sp.Rollback(ctx) }()
	if err := fn(sp); err != nil {
		return err
	}
	return sp.Commit(ctx)
}

// Work has a transaction of its own.
type Work struct{ Pool *pgxpool.Pool }

func (w *Work) Do(ctx context.Context, fn func(tx pgx.Tx) error) error {
	tx, err := w.Pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// Finish ends a transaction.
func Finish(ctx context.Context, tx pgx.Tx, err error) error {
	if err != nil {
		_ = tx.Rollback(ctx)
		return err
	}
	return tx.Commit(ctx)
}

// Repo is a repository of rows of one type.
type Repo[T any] struct {
	db    DB
	table string
}

func NewRepo[T any](db DB, table string) *Repo[T] { return &Repo[T]{db: db, table: table} }

func (r *Repo[T]) With(tx pgx.Tx) *Repo[T] {
	c := *r
	c.db = tx
	return &c
}

func (r *Repo[T]) Use(db DB) { r.db = db }

func (r *Repo[T]) Save(ctx context.Context, row T) error {
	_, err := r.db.Exec(ctx, "INSERT INTO "+r.table+" (row) VALUES ($1)", row)
	return err
}

// Option chooses where SaveTo writes.
type Option func(*options)

type options struct{ db DB }

func In(tx pgx.Tx) Option { return func(o *options) { o.db = tx } }

func (r *Repo[T]) SaveTo(ctx context.Context, row T, opts ...Option) error {
	o := options{db: r.db}
	for _, opt := range opts {
		opt(&o)
	}
	_, err := o.db.Exec(ctx, "INSERT INTO "+r.table+" (row) VALUES ($1)", row)
	return err
}

type key struct{}

func WithTx(ctx context.Context, tx pgx.Tx) context.Context { return context.WithValue(ctx, key{}, tx) }

// From returns the transaction in ctx, or what to use without one.
func From(ctx context.Context, otherwise DB) DB {
	if tx, ok := ctx.Value(key{}).(pgx.Tx); ok {
		return tx
	}
	return otherwise
}

// Event makes an outgoing message with another ID each time.
func Event(topic string, body []byte) outbox.Message {
	return outbox.Message{ID: uuid.NewString(), Topic: topic, Payload: body}
}

// EventOf makes an outgoing message whose ID says what it is about.
func EventOf(topic, about string) outbox.Message {
	return outbox.Message{ID: fmt.Sprintf("%s/%s", topic, about), Topic: topic}
}

// ByAttempt makes a key.
func ByAttempt(prefix string) consumer.KeyFunc {
	return func(msg *consumer.Message) (string, error) {
		return fmt.Sprintf("%s-%s-%d", prefix, msg.ID, msg.Attempt), nil // want `the key is made of Message.Attempt`
	}
}
