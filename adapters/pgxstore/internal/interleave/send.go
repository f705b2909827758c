package interleave

import (
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// send sends the statements of all handlers in the queue as one pipeline, in the order of the handlers, and answers
// them. The caller holds mu.
func (in *interleaving) send() {
	asked := in.queue
	in.queue = nil
	slices.SortFunc(asked, func(a, b *handler) int { return a.place - b.place })
	p := &pipeline{in: in}
	for _, h := range asked {
		for _, s := range h.statements {
			p.add(h, s)
		}
	}
	if err := in.unlocked(p.run); err != nil {
		in.fail(p.culprit, err)
		return
	}
	next := 0
	for _, h := range asked {
		n := len(h.statements)
		h.results = p.results[next : next+n : next+n]
		next += n
		in.answer(h, nil)
	}
}

// stalled ends the wait of all handlers. While pgx encodes the arguments of a pipeline it may call code of the user,
// such as driver.Valuer, which may wait for one of the handlers.
func (in *interleaving) stalled() {
	in.mu.Lock()
	in.fail(-1, errStalled)
	in.mu.Unlock()
	close(in.stuck)
}

// pipeline is one round trip. Only the goroutine of Run uses it.
type pipeline struct {
	in         *interleaving
	batch      pgx.Batch
	owners     []*handler // of the statements
	statements []statement
	results    []*result
	culprit    int // after an error: the handler whose statement has failed, or -1
}

func (p *pipeline) add(h *handler, s statement) {
	p.batch.Queue(s.sql, s.args...)
	p.owners, p.statements = append(p.owners, h), append(p.statements, s)
}

func (p *pipeline) run() (err error) {
	p.culprit = -1
	cfg := &p.in.cfg
	if err := cfg.Guard.Ready(p.in.ctx); err != nil {
		return err
	}
	watch := time.AfterFunc(cfg.StallsAfter, p.in.stalled)
	sent := cfg.Guard.Send(p.in.ctx, &p.batch)
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
func (p *pipeline) read(r *result, sent pgx.BatchResults, owner *handler) error {
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
