package pgxstore_test

import (
	"context"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/outbox"
)

// counted adds to Stats what is in the slot, which the store itself does not know: it has no cheaper way than this one to find
// out, a copy of the slot that is read to its end.
type counted struct {
	*pgxstore.Store
	db *outboxDB
}

// Stats looks first at what is settled, then into the tables, and last into the slot, from where it was at the beginning: so it
// misses nothing that is pending all the while, and at worst counts twice what moves meanwhile.
func (c counted) Stats(ctx context.Context) (outbox.Stats, error) {
	conn, err := pgx.Connect(ctx, c.db.dsn)
	if err != nil {
		return outbox.Stats{}, err
	}
	defer conn.Close(ctx)
	p := peeked{conn: conn}
	if err := p.copySlot(ctx); err != nil {
		return outbox.Stats{}, err
	}
	// Close does not wait until the server has forgotten the copy, and it has room for ten.
	defer func() { _, _ = conn.Exec(ctx, `SELECT pg_drop_replication_slot($1)`, p.copied) }()
	if err := p.readSettled(ctx); err != nil {
		return outbox.Stats{}, err
	}
	st, err := c.Store.Stats(ctx)
	if err != nil {
		return st, err
	}
	err = p.pending(ctx, func(m outbox.Leased) {
		st.Count(m.Topic, outbox.StatePending, 1, m.Enqueued, 0, "")
	})
	return st, err
}

// peeked is a copy of a slot, and what was settled of it a moment later.
type peeked struct {
	conn         *pgx.Conn // with it the copy goes away
	slot, copied string
	settled      map[int64]bool // by seq; beyond confirmed
	confirmed    pglogrepl.LSN
}

func (p *peeked) copySlot(ctx context.Context) error {
	if err := p.conn.QueryRow(ctx, `SELECT slot FROM txonce_slots`).Scan(&p.slot); err != nil {
		return err
	}
	p.copied = fmt.Sprintf("%s_%d", p.slot, p.conn.PgConn().PID())
	_, err := p.conn.Exec(ctx, `SELECT pg_copy_logical_replication_slot($1, $2, true)`, p.slot, p.copied)
	return err
}

// readSettled reads the position after the notes, which a Tidy deletes below it. The slot's own position does not serve: the server
// hears of a Settle by and by, while it is busy decoding what others write.
func (p *peeked) readSettled(ctx context.Context) error {
	p.settled = map[int64]bool{}
	rows, _ := p.conn.Query(ctx, `SELECT seq FROM txonce_slot_settled UNION ALL SELECT unnest(also) FROM txonce_slot_settled`)
	var seq int64
	if _, err := pgx.ForEachRow(rows, []any{&seq}, func() error { p.settled[seq] = true; return nil }); err != nil {
		return err
	}
	return p.conn.QueryRow(ctx, `SELECT ('0/0'::pg_lsn + last_value)::text FROM txonce_slot_confirmed`).Scan(&p.confirmed)
}

// pending calls found for each message that is in the slot and not settled, once it has come to the end of its transaction.
func (p *peeked) pending(ctx context.Context, found func(outbox.Leased)) error {
	rows, _ := p.conn.Query(ctx, `SELECT data FROM pg_logical_slot_peek_binary_changes($1, NULL, NULL,
		'proto_version', '1', 'messages', 'true', 'publication_names', $2)`, p.copied, p.slot)
	var data []byte
	var open []outbox.Leased
	_, err := pgx.ForEachRow(rows, []any{&data}, func() error {
		msg, err := pglogrepl.Parse(data)
		if err != nil {
			return err
		}
		switch msg := msg.(type) {
		case *pglogrepl.LogicalDecodingMessage:
			if msg.Prefix != "txonce:"+p.slot || msg.Content[0] == 'k' {
				return nil
			}
			m, err := pgxstore.DecodeWAL(msg.Content)
			if err != nil {
				return err
			}
			if !p.settled[m.Seq] {
				open = append(open, m)
			}
		case *pglogrepl.CommitMessage:
			if msg.TransactionEndLSN > p.confirmed {
				for _, m := range open {
					found(m)
				}
			}
			open = nil
		}
		return nil
	})
	return err
}
