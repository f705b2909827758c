package pgxstore

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/txonce/txonce/internal/dialect"
)

// branch is what Interleave knows about one handler.
type branch struct {
	f        *interleaving
	place    int
	handler  func(context.Context, pgx.Tx) error
	answered chan struct{} // gets an element when the goroutine of Interleave has answered
	batches  sentBatches   // with results of Interleave; the guard has the others
	types    *pgtype.Map   // a copy of the connection's, which other handlers use; set before an answer

	// The following fields are guarded by interleaving.mu.
	waits      waits
	statements []statement // wait for their results
	results    []*result   // of statements
	err        error       // why there are none
	alone      bool        // the handler has its turn
	using      bool        // a call of the handler is in progress
	open       int         // rows and batches that the handler has not closed
	returned   bool        // the handler has returned
	outgoing   []outgoing  // enqueued before the turn, see interleaving.move
}

// waits is what a handler waits for.
type waits uint8

const (
	waitsForNothing waits = iota
	waitsForResults
	waitsForTurn
)

// statement is a statement that a handler has sent.
type statement struct {
	sql  string
	args []any
	exec bool // the rows are dropped
}

// ask hands statements to the goroutine of Interleave, and returns their results. The handler must close those that it reads.
func (b *branch) ask(ctx context.Context, statements ...statement) ([]*result, error) {
	f := b.f
	f.mu.Lock()
	b.statements, b.results = statements, nil
	err := b.wait(ctx, waitsForResults)
	results := b.results
	b.statements, b.results = nil, nil
	f.mu.Unlock()
	return results, err
}

// takeTurn waits until the handler has the transaction for itself.
func (b *branch) takeTurn(ctx context.Context) error {
	f := b.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if b.alone {
		return nil
	}
	return b.wait(ctx, waitsForTurn)
}

// takeTurnFor takes the turn for something that is not a statement of the handler.
func (b *branch) takeTurnFor(ctx context.Context) error {
	if err := b.begin(ctx); err != nil {
		return err
	}
	defer b.end()
	return b.takeTurn(ctx)
}

// wait waits for an answer of the goroutine of Interleave. When ctx ends meanwhile, everything fails, as it does without Interleave. The caller
// holds interleaving.mu, which wait releases meanwhile.
func (b *branch) wait(ctx context.Context, what waits) error {
	f := b.f
	if err := b.usable(); err != nil {
		return err
	}
	if b.waits = what; what == waitsForTurn {
		f.turns++
	} else {
		f.queue = append(f.queue, b)
	}
	f.busy--
	f.nudge(len(f.queue)+f.turns == 1) // lingers begins
	f.mu.Unlock()
	select {
	case <-b.answered:
		f.mu.Lock()
		return b.err
	case <-f.stuck:
	case <-ctx.Done():
		f.mu.Lock()
		f.fail(b.place, ctx.Err())
		f.mu.Unlock()
		select { // the arguments may be in use
		case <-b.answered:
		case <-f.stuck:
		}
	}
	f.mu.Lock()
	b.waits = waitsForNothing // no answer will come
	if f.failed == b.place && ctx.Err() != nil {
		return ctx.Err()
	}
	return context.Cause(f.ctx)
}

// begin is called before each use of the transaction. If it returns no error, call end afterwards.
func (b *branch) begin(ctx context.Context) error {
	f := b.f
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moves++
	switch err := b.usable(); {
	case err != nil:
		return err
	case b.using, b.open > 0: // without Interleave this fails too, so the handler must not get used to it
		f.fail(b.place, errTwice)
		return errTwice
	case ctx.Err() != nil && !b.alone:
		return ctx.Err()
	}
	b.using = true
	return nil
}

// usable returns why the handler must not use the transaction any more. The caller holds interleaving.mu.
func (b *branch) usable() error {
	switch {
	case b.returned:
		return errReturned
	case b.f.err != nil:
		return context.Cause(b.f.ctx)
	}
	return nil
}

func (b *branch) end() {
	b.f.mu.Lock()
	b.using = false
	b.f.moves++
	b.f.mu.Unlock()
}

// opened returns a function that records that the handler has closed rows or a batch, which it has just opened.
func (b *branch) opened() (closed func()) {
	b.f.mu.Lock()
	b.open++
	b.f.mu.Unlock()
	return func() {
		b.f.mu.Lock()
		b.open--
		b.f.mu.Unlock()
	}
}

// needsTurn reports whether a statement needs the transaction for its handler alone. If exec is true, the handler has sent it by Exec.
func (b *branch) needsTurn(s statement) (bool, error) {
	c := dialect.Inspect(s.sql)
	if c.Recalls {
		f := b.f
		f.mu.Lock()
		defer f.mu.Unlock()
		if !b.alone && !f.alone && !b.returned {
			f.fail(b.place, errRecall)
			return false, errRecall
		}
	}
	return b.f.alone || c.Alone || b.f.tx.g.c.store.enqueues(s.sql) || slices.ContainsFunc(s.args, isOption), nil
}

// isOption reports whether a leading argument changes how pgx sends a statement, in a way that a pipeline does not support, or that
// hides the statement from the guard.
func isOption(arg any) bool {
	switch arg.(type) {
	case pgx.NamedArgs, pgx.StrictNamedArgs:
		return false
	case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID, pgx.QueryRewriter:
		return true
	}
	return false
}

func (b *branch) hasTurn() bool {
	b.f.mu.Lock()
	defer b.f.mu.Unlock()
	return b.alone
}

// enqueue keeps outbox messages until their place in the order is known.
func (b *branch) enqueue(ctx context.Context, tx *guarded, rows []outgoing) error {
	for i := range rows {
		rows[i].payload = slices.Clone(rows[i].payload)
	}
	b.f.mu.Lock()
	err, alone := b.usable(), b.alone
	if err == nil && !alone {
		b.outgoing = append(b.outgoing, rows...)
	}
	b.f.mu.Unlock()
	if err != nil || !alone {
		return err
	}
	return tx.add(ctx, rows)
}
