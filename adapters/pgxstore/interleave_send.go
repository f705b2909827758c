package pgxstore

import (
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// errHidden says that a function has changed how the server parses statements, so that needsTurn may have been wrong.
var errHidden = errors.New("pgxstore: standard_conforming_strings was turned off in a transaction with several handlers")

// send sends the statements of all branches in the queue as one pipeline, in the order of the handlers, and answers the branches. The
// caller holds mu.
func (f *interleaving) send() {
	asked := f.queue
	f.queue = nil
	slices.SortFunc(asked, func(a, b *branch) int { return a.place - b.place })
	p := &pipeline{f: f}
	for _, b := range asked {
		for _, s := range b.statements {
			p.add(b, s)
		}
	}
	if err := f.unlocked(p.run); err != nil {
		f.fail(p.culprit, err)
		return
	}
	next := 0
	for _, b := range asked {
		n := len(b.statements)
		b.results = p.results[next : next+n : next+n]
		next += n
		f.answer(b, nil)
	}
}

// stalled ends the wait of all handlers. While pgx encodes the arguments of a pipeline it may call code of the user, such as
// driver.Valuer, which may wait for one of the handlers.
func (f *interleaving) stalled() {
	f.mu.Lock()
	f.fail(-1, errStalled)
	f.mu.Unlock()
	close(f.stuck)
}

// pipeline is one round trip. Only the goroutine of Interleave uses it.
type pipeline struct {
	f          *interleaving
	batch      pgx.Batch
	owners     []*branch // of the statements
	statements []statement
	results    []*result
	culprit    int // after an error: the handler whose statement has failed, or -1
}

func (p *pipeline) add(b *branch, s statement) {
	p.batch.Queue(s.sql, s.args...)
	p.owners, p.statements = append(p.owners, b), append(p.statements, s)
}

func (p *pipeline) run() (err error) {
	p.culprit = -1
	g := p.f.tx.g
	if err := g.ready(p.f.ctx); err != nil {
		return err
	}
	if hidesText(g.c.conn) {
		return errHidden
	}
	g.failures.touch()
	watch := time.AfterFunc(p.f.stallsAfter, p.f.stalled)
	sent := guardedBatch{p.f.tx.Tx.SendBatch(p.f.ctx, &p.batch), g}
	watch.Stop()
	p.results = make([]*result, len(p.statements))
	for i, s := range p.statements {
		r := &result{}
		if s.exec {
			r.tag, err = sent.Exec()
		} else {
			err = p.read(r, sent, p.owners[i])
		}
		if err != nil {
			if errors.As(err, new(*pgconn.PgError)) && !errors.As(err, new(pgx.ErrPreprocessingBatch)) {
				p.culprit = p.owners[i].place
			}
			_ = sent.Close()
			return err
		}
		p.results[i] = r
	}
	return sent.Close()
}

// read reads a result into memory.
func (p *pipeline) read(r *result, sent guardedBatch, owner *branch) error {
	rows, err := sent.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		r.data = append(r.data, copyRow(rows.RawValues()))
	}
	if fields := rows.FieldDescriptions(); len(fields) > 0 {
		r.fields = slices.Clone(fields)
		if owner.types == nil {
			owner.types = copyTypes(rows.TypeMap())
		}
		for i := range r.fields {
			unshareType(owner.types, rows.TypeMap(), r.fields[i].DataTypeOID)
		}
	}
	rows.Close()
	r.tag = rows.CommandTag()
	return rows.Err()
}

// copyRow copies the values of a row, which are valid until the next row is read.
func copyRow(values [][]byte) [][]byte {
	size := 0
	for _, v := range values {
		size += len(v)
	}
	row, buf := make([][]byte, len(values)), make([]byte, 0, size)
	for i, v := range values {
		if v != nil {
			from := len(buf)
			buf = append(buf, v...)
			row[i] = buf[from:len(buf):len(buf)]
		}
	}
	return row
}
