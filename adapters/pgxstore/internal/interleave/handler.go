package interleave

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/txonce/txonce/adapters/pgxstore/internal/pgxrows"
	"github.com/txonce/txonce/internal/dialect"
)

// handler is what Run knows about one handler.
type handler struct {
	in       *interleaving
	place    int
	handle   func(context.Context, pgx.Tx) error
	answered chan struct{}       // gets an element when the goroutine of Run has answered
	batches  pgxrows.SentBatches // with results of Run; the guard has the others
	types    *pgtype.Map         // a copy of the connection's, which other handlers use; set before an answer

	// The following fields are guarded by interleaving.mu.
	waits      waits
	statements []statement                   // wait for their results
	results    []*result                     // of statements
	err        error                         // why there are none
	alone      bool                          // the handler has the transaction for itself
	using      bool                          // a call of the handler is in progress
	open       int                           // rows and batches that the handler has not closed
	returned   bool                          // the handler has returned
	late       []func(context.Context) error // see Tx.Later
}

// waits is what a handler waits for.
type waits uint8

const (
	waitsForNothing waits = iota
	waitsForResults
	waitsToBeAlone
)

// statement is a statement that a handler has sent.
type statement struct {
	sql  string
	args []any
	exec bool // the rows are dropped
}

// ask hands statements to the goroutine of Run, and returns their results. The handler must close those that it reads.
func (h *handler) ask(ctx context.Context, statements ...statement) ([]*result, error) {
	in := h.in
	in.mu.Lock()
	h.statements, h.results = statements, nil
	err := h.wait(ctx, waitsForResults)
	results := h.results
	h.statements, h.results = nil, nil
	in.mu.Unlock()
	return results, err
}

// beAlone waits until the handler has the transaction for itself.
func (h *handler) beAlone(ctx context.Context) error {
	in := h.in
	in.mu.Lock()
	defer in.mu.Unlock()
	if h.alone {
		return nil
	}
	return h.wait(ctx, waitsToBeAlone)
}

// wait waits for an answer of the goroutine of Run. When ctx ends meanwhile, everything fails, as it does without
// Interleave. The caller holds interleaving.mu, which wait releases meanwhile.
func (h *handler) wait(ctx context.Context, what waits) error {
	in := h.in
	if err := h.usable(); err != nil {
		return err
	}
	if h.waits = what; what == waitsToBeAlone {
		in.waiting++
	} else {
		in.queue = append(in.queue, h)
	}
	in.busy--
	in.nudge(len(in.queue)+in.waiting == 1) // lingers begins
	in.mu.Unlock()
	select {
	case <-h.answered:
		in.mu.Lock()
		return h.err
	case <-in.stuck:
	case <-ctx.Done():
		in.mu.Lock()
		in.fail(h.place, ctx.Err())
		in.mu.Unlock()
		select { // the arguments may be in use
		case <-h.answered:
		case <-in.stuck:
		}
	}
	in.mu.Lock()
	h.waits = waitsForNothing // no answer will come
	if in.failed == h.place && ctx.Err() != nil {
		return ctx.Err()
	}
	return context.Cause(in.ctx)
}

// begin is called before each use of the transaction. If it returns no error, call end afterwards.
func (h *handler) begin(ctx context.Context) error {
	in := h.in
	in.mu.Lock()
	defer in.mu.Unlock()
	in.moves++
	switch err := h.usable(); {
	case err != nil:
		return err
	case h.using, h.open > 0: // without Interleave this fails too, so the handler must not get used to it
		in.fail(h.place, errTwice)
		return errTwice
	case ctx.Err() != nil && !h.alone:
		return ctx.Err()
	}
	h.using = true
	return nil
}

// usable returns why the handler must not use the transaction any more. The caller holds interleaving.mu.
func (h *handler) usable() error {
	switch {
	case h.returned:
		return pgxrows.ErrReturned
	case h.in.err != nil:
		return context.Cause(h.in.ctx)
	}
	return nil
}

func (h *handler) end() {
	h.in.mu.Lock()
	h.using = false
	h.in.moves++
	h.in.mu.Unlock()
}

// opened returns a function that records that the handler has closed rows or a batch, which it has just opened.
func (h *handler) opened() (closed func()) {
	h.in.mu.Lock()
	h.open++
	h.in.mu.Unlock()
	return func() {
		h.in.mu.Lock()
		h.open--
		h.in.mu.Unlock()
	}
}

// needsAlone reports whether a statement needs the transaction for its handler alone. If exec is true, the handler has
// sent it by Exec.
func (h *handler) needsAlone(s statement) (bool, error) {
	c := dialect.Inspect(s.sql)
	if c.Recalls {
		in := h.in
		in.mu.Lock()
		defer in.mu.Unlock()
		if !h.alone && !in.cfg.Alone && !h.returned {
			in.fail(h.place, errRecall)
			return false, errRecall
		}
	}
	return h.in.cfg.Alone || c.Alone || h.in.cfg.Guard.Enqueues(s.sql) || slices.ContainsFunc(s.args, isOption), nil
}

// isOption reports whether a leading argument changes how pgx sends a statement, in a way that a pipeline does not
// support, or that hides the statement from the guard.
func isOption(arg any) bool {
	switch arg.(type) {
	case pgx.NamedArgs, pgx.StrictNamedArgs:
		return false
	case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID, pgx.QueryRewriter:
		return true
	}
	return false
}

func (h *handler) isAlone() bool {
	h.in.mu.Lock()
	defer h.in.mu.Unlock()
	return h.alone
}
