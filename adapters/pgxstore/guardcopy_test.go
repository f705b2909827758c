package pgxstore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/testdb"
)

// panicking is a source of rows for COPY that panics in the method of that name.
type panicking struct {
	pgx.CopyFromSource
	in string
}

func (p panicking) Next() bool {
	p.panics("Next")
	return p.CopyFromSource.Next()
}

func (p panicking) Values() ([]any, error) {
	p.panics("Values")
	return p.CopyFromSource.Values()
}

func (p panicking) Err() error {
	p.panics("Err")
	return p.CopyFromSource.Err()
}

func (p panicking) panics(method string) {
	if p.in == method {
		panic("of " + method)
	}
}

// pgx calls the source of a COPY on a goroutine of its own. A panic there must not end the process: the message would
// end the next one too.
func TestCopyOfRowsThatPanic(t *testing.T) {
	for _, method := range []string{"Next", "Values", "Err"} {
		for name, run := range map[string]func(h *handlerTest, do interleaveHandler) error{
			"":             func(h *handlerTest, do interleaveHandler) error { return h.handle("k", do) },
			" interleaved": func(h *handlerTest, do interleaveHandler) error { return second(h.interleave(nil, do)) },
		} {
			t.Run(method+name, func(t *testing.T) {
				t.Parallel()
				h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
				err := run(h, func(ctx context.Context, tx pgx.Tx) error {
					rows := panicking{pgx.CopyFromRows([][]any{{"one"}, {"two"}}), method}
					return second(tx.CopyFrom(ctx, pgx.Identifier{"effects"}, []string{"name"}, rows))
				})
				panicked, ok := errors.AsType[*consumer.PanicError](err)
				if !ok || panicked.Value != "of "+method || len(panicked.Stack) == 0 || h.store.Retryable(err) {
					t.Errorf("err = %v", err)
				}
				if n := len(h.effects()); n != 0 {
					t.Errorf("%d effects", n)
				}
			})
		}
	}
}
