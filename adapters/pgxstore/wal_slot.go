package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// CreateOutboxSlot creates what OutboxWAL needs: a publication of no tables, a logical replication slot, and the row by which
// Enqueue and relays recognise it. Call it once after Migrate; where the slot exists and is in order it changes nothing, and
// any number of nodes may call it at once. It waits for the end of all transactions that are open on the server. The
// role needs REPLICATION, and CREATE on the database; the server two free ones of max_replication_slots, of which one
// is free again at the end.
//
// The slot keeps the write-ahead log from the last published message on: without a relay the disk fills up, unless
// max_slot_wal_keep_size bounds it, and then messages are lost. Watch outbox.Stats.SlotLag.
func (s *Store) CreateOutboxSlot(ctx context.Context) error {
	return s.slotTx(ctx, func(conn *pgx.Conn) error {
		state, err := s.slotState(ctx, conn, pgtype.UUID{})
		if err != nil {
			return err
		}
		if state.slot != "" {
			return state.problem()
		}
		return s.createSlot(ctx, conn, s.wal.Record)
	})
}

// RepairOutboxSlot makes an outbox usable again whose slot cannot be used: somebody has to decide to go on, knowing what may
// have been lost, and this is how he says so. It returns that; nil where the slot was in order, or is now without loss. It
// takes the hold from a living relay.
func (s *Store) RepairOutboxSlot(ctx context.Context) (lost *SlotError, err error) {
	err = s.slotTx(ctx, func(conn *pgx.Conn) error {
		state, err := s.slotState(ctx, conn, pgtype.UUID{})
		if err != nil {
			return err
		}
		problem := state.problem()
		if state.slot == "" || problem == nil || !errors.As(problem, &lost) {
			return problem // none was created: there is nothing to repair
		}
		if lost.Reason == "unreserved" || lost.Reason == "unfinished" {
			return problem
		}
		if lost.Reason == "promoted" && state.confirmed != 0 && state.confirmed <= state.recorded {
			lost = nil // the slot came along, and has everything
			return s.adoptSlot(ctx, conn, state)
		}
		if lost.Reason != "copied" { // else it is somebody else's
			if err := s.dropSlot(ctx, conn, state); err != nil {
				return err
			}
		}
		return s.createSlot(ctx, conn, s.wal.Replace)
	})
	return lost, err
}

// slotTx runs fn on a connection, alone among all that change this outbox's slot.
func (s *Store) slotTx(ctx context.Context, fn func(conn *pgx.Conn) error) error {
	if s.cfg.Outbox.Mode != OutboxWAL {
		return errors.New("pgxstore: Config.Outbox.Mode is not OutboxWAL: there is no slot")
	}
	if err := s.checkPooler(ctx); err != nil {
		return err
	}
	if err := s.checkSchema(ctx); err != nil {
		return err
	}
	conn, err := s.cfg.Pool.Acquire(ctx)
	if err != nil {
		return s.outboxError("slot", err)
	}
	defer conn.Release()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return s.outboxError("slot", err)
	}
	defer rollback(ctx, tx)
	// Whoever waits here has written nothing, so that the creation of a slot does not wait for him.
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, s.slotLock()); err != nil {
		return s.outboxError("slot", err)
	}
	if err := fn(conn.Conn()); err != nil {
		return s.outboxError("slot", err)
	}
	return s.outboxError("slot", tx.Commit(ctx))
}

func (s *Store) slotLock() int64 {
	h := fnv.New64a()
	h.Write([]byte("txonce outbox slot\x00" + s.cfg.Schema))
	return int64(h.Sum64())
}

// createSlot creates the slot and then, in the same transaction, has its identity written. After a crash between the two
// there is a slot that no row describes, and Enqueue still refuses.
func (s *Store) createSlot(ctx context.Context, conn *pgx.Conn, record string) error {
	var level string
	var recovering bool
	if err := conn.QueryRow(ctx, s.wal.Level).Scan(&level, &recovering); err != nil {
		return err
	}
	if recovering {
		return errors.New("the database is a standby: create the slot on the primary")
	}
	if level != "logical" {
		return fmt.Errorf("wal_level is %s: set it to logical and restart the server, or use another Config.Outbox.Mode", level)
	}
	var name string
	var before *string
	if err := conn.QueryRow(ctx, s.wal.Names).Scan(&name, &before); err != nil {
		return err
	}
	if s.cfg.Outbox.Slot != "" {
		name = s.cfg.Outbox.Slot
	}
	var taken bool
	if err := conn.QueryRow(ctx, s.wal.Taken, name).Scan(&taken); err != nil {
		return err
	}
	if taken {
		return fmt.Errorf("slot %q exists already, and may be somebody else's: choose another Config.Outbox.Slot, or, if nobody reads it, SELECT pg_drop_replication_slot('%s')", name, name)
	}
	// Not in the transaction, in which the slot must come before everything that writes.
	if err := s.createPublication(ctx, name); err != nil {
		return err
	}
	var lsn pglogrepl.LSN
	if err := conn.QueryRow(ctx, s.wal.Create, name).Scan(&lsn); err != nil {
		return slotNotCreated(name, err)
	}
	lsn, err := s.freshSnapshot(ctx, conn, name, lsn)
	if err != nil {
		// In another session, since the error has ended this one's transaction. If this fails, the next call says that the slot exists.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), terminateWait)
		defer cancel()
		_, _ = s.cfg.Pool.Exec(ctx, s.wal.Drop, name)
		return slotNotCreated(name, err)
	}
	if _, err := conn.Exec(ctx, record, name, lsn.String()); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, s.wal.Advance, lsn.String())
	return err
}

func slotNotCreated(name string, err error) error {
	return fmt.Errorf("create slot %q (the role needs REPLICATION, the server two free ones of max_replication_slots): %w", name, err)
}

// freshSnapshot advances a new slot, of which nobody has emitted anything yet, to where it does not need the snapshot of the
// catalogs any more that was built while it was created, and returns that position. PostgreSQL (seen on 15 and 18) leaves
// tables out of that one which were created meanwhile: a later write to such a table cannot be decoded ("could not map
// filenode"), and nothing behind it ever arrives.
//
// The server writes down a snapshot where it notes which transactions run, and creating another slot is how to make it do so.
// The new slot begins there once every transaction has ended that is older than that.
func (s *Store) freshSnapshot(ctx context.Context, conn *pgx.Conn, name string, created pglogrepl.LSN) (lsn pglogrepl.LSN, err error) {
	for begins := pglogrepl.LSN(0); ; {
		if err := conn.QueryRow(ctx, s.wal.Passing).Scan(&lsn); err != nil {
			return 0, err
		}
		if _, err := conn.Exec(ctx, s.wal.EndPassing); err != nil {
			return 0, err
		}
		if err := conn.QueryRow(ctx, s.wal.Skip, name, lsn.String()).Scan(&lsn); err != nil {
			return 0, err
		}
		if err := conn.QueryRow(ctx, s.wal.Begins, name).Scan(&begins); err != nil || begins >= created {
			return lsn, err
		}
		select { // a snapshot that another slot's reader has written down spares the passing one to wait
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// createPublication makes the one that pgoutput wants to be named. It publishes no table.
func (s *Store) createPublication(ctx context.Context, name string) error {
	_, err := s.cfg.Pool.Exec(ctx, `CREATE PUBLICATION `+pgx.Identifier{name}.Sanitize())
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "42710" { // there is one
		return nil
	}
	if err != nil {
		return fmt.Errorf("create publication %q (the role needs CREATE on the database): %w", name, err)
	}
	return nil
}

// dropSlot drops a slot of this outbox, if it is there. A relay that reads it loses it.
func (s *Store) dropSlot(ctx context.Context, conn *pgx.Conn, state slotState) error {
	if state.activePID != 0 {
		if err := s.terminate(ctx, state); err != nil {
			return err
		}
	}
	_, err := conn.Exec(ctx, s.wal.Drop, state.slot)
	return err
}

// adoptSlot makes this server's timeline the slot's.
func (s *Store) adoptSlot(ctx context.Context, conn *pgx.Conn, state slotState) error {
	_, err := conn.Exec(ctx, s.wal.Replace, state.slot, state.confirmed.String())
	return err
}

// slotState is a slot as it is, and as it was recorded.
type slotState struct {
	slot, reason        string
	mine                bool // this owner holds it
	token               int64
	activePID           int32         // of the walsender that has it; 0: none
	confirmed, recorded pglogrepl.LSN // confirmed: 0: there is no such slot
	now                 pglogrepl.LSN
	lastSeq             int64
}

func (s *Store) slotState(ctx context.Context, on querier, owner pgtype.UUID) (st slotState, err error) {
	err = on.QueryRow(ctx, s.wal.State, owner).Scan(&st.slot, &st.reason, &st.mine, &st.token, &st.activePID,
		&st.confirmed, &st.recorded, &st.now, &st.lastSeq)
	return st, s.outboxError("slot", err)
}

// problem is nil when the slot is in order.
func (st *slotState) problem() error {
	if st.reason == "" {
		return nil
	}
	err := &SlotError{Slot: st.slot, Reason: st.reason}
	switch st.reason {
	case "missing", "lost", "promoted":
		err.From, err.To, err.LastSeq = st.recorded.String(), st.now.String(), st.lastSeq
	case "foreign":
		err.From, err.To, err.LastSeq = st.recorded.String(), st.confirmed.String(), st.lastSeq
	}
	return databaseError{err}
}
