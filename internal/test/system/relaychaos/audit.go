//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// entry is the ledger's record of one committed message.
type entry struct {
	id      string
	key     int
	n       int64 // its number within its key
	payload []byte
}

// publication is one record of the output topic.
type publication struct {
	partition int32
	offset    int64
	id        string // from its headers
	seq       int64  // from its headers; -1: none
	key       string
	payload   []byte
	headers   map[string]string // without the relay's headers
}

// audit compares the topic with the ledger.
type audit struct {
	ledger   map[string]*entry
	first    map[string]*publication
	ends     map[string]mark // per key, the end of its first publications
	findings findings
}

// mark is the end of a key's first publications so far.
type mark struct {
	partition int32
	n         int64 // the highest number
	seq       int64 // the highest sequence number
}

// findings is what an audit found.
type findings struct {
	Committed    int // messages in the ledger
	Publications int // records in the topic
	Missing      int
	Phantom      int
	OutOfOrder   int
	Altered      int
	Repeats      int
	Problems     []string // descriptions of the first few problems
	problems     int
}

func newAudit(ledger []entry) *audit {
	a := &audit{
		ledger: make(map[string]*entry, len(ledger)), first: make(map[string]*publication, len(ledger)),
		ends: map[string]mark{},
	}
	for i := range ledger {
		a.ledger[ledger[i].id] = &ledger[i]
	}
	a.findings.Committed = len(ledger)
	return a
}

// publication checks one record. Records of a partition must be passed in the order of their offsets.
func (a *audit) publication(p *publication) {
	f := &a.findings
	f.Publications++
	e := a.ledger[p.id]
	switch {
	case e == nil:
		f.Phantom++
		a.problem("%v carries the ID %q, which no committed transaction enqueued", p, p.id)
		return
	case !bytes.HasPrefix(p.payload, e.payload[:executionLength]):
		f.Phantom++
		a.problem("%v is message %s of an execution that was rolled back", p, p.id)
		return
	case !bytes.Equal(p.payload, e.payload) || p.key != keyName(e.key) || len(p.headers) != 1 ||
		p.headers[headerDigest] != digest(e.payload):
		f.Altered++
		a.problem("%v is not message %s as it was enqueued: key %q, headers %q, %d bytes", p, p.id, p.key, p.headers,
			len(p.payload))
		return
	}
	if before := a.first[p.id]; before != nil {
		f.Repeats++
		if before.seq != p.seq {
			f.Altered++
			a.problem("%v repeats %s with sequence number %d instead of %d", p, p.id, p.seq, before.seq)
		}
		return
	}
	a.first[p.id] = p
	a.inOrder(p, e)
}

// inOrder checks that a first publication comes after those before it.
func (a *audit) inOrder(p *publication, e *entry) {
	end, begun := a.ends[p.key]
	if !begun {
		end = mark{partition: p.partition, seq: math.MinInt64}
	}
	switch {
	case p.partition != end.partition:
		a.findings.OutOfOrder++
		a.problem("%v is on another partition than the key's first", p)
	case e.n < end.n:
		a.findings.OutOfOrder++
		a.problem("%v is number %d of %s and comes after number %d", p, e.n, p.key, end.n)
	case p.seq <= end.seq || p.seq < 0:
		a.findings.Altered++
		a.problem("%v, number %d of %s, has sequence number %d, and an earlier one %d", p, e.n, p.key, p.seq, end.seq)
	}
	end.n, end.seq = max(end.n, e.n), max(end.seq, p.seq)
	a.ends[p.key] = end
}

func (p *publication) String() string {
	return fmt.Sprintf("partition %d offset %d", p.partition, p.offset)
}

func (a *audit) problem(format string, args ...any) {
	const shown = 10
	if a.findings.problems++; a.findings.problems <= shown {
		a.findings.Problems = append(a.findings.Problems, fmt.Sprintf(format, args...))
	}
}

// close returns the findings.
func (a *audit) close() findings {
	for id, e := range a.ledger {
		if a.first[id] == nil {
			a.findings.Missing++
			a.problem("message %s, number %d of %s, was never published", id, e.n, keyName(e.key))
		}
	}
	if more := a.findings.problems - len(a.findings.Problems); more > 0 {
		a.findings.Problems = append(a.findings.Problems, fmt.Sprintf("and %d more", more))
	}
	return a.findings
}

// readLedger returns the committed messages, and checks that their numbers have no gaps; otherwise the ledger proves
// nothing about order.
func readLedger(ctx context.Context, db *pgxpool.Pool) ([]entry, error) {
	rows, err := db.Query(ctx, `SELECT id, key, n, payload FROM chaos_ledger ORDER BY key, n`)
	if err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	ledger, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e entry, err error) {
		err = row.Scan(&e.id, &e.key, &e.n, &e.payload)
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	for i, e := range ledger {
		want := int64(1)
		if i > 0 && ledger[i-1].key == e.key {
			want = ledger[i-1].n + 1
		}
		if e.n != want || len(e.payload) < executionLength {
			return nil, fmt.Errorf("the ledger's entry %s is number %d of key %d instead of %d", e.id, e.n, e.key, want)
		}
	}
	return ledger, nil
}
