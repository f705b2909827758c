package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/txonce/txonce/outbox"
)

const (
	walTick     = time.Second
	walPing     = 5 // ticks between two questions whether the server is there
	walSilence  = 30 * time.Second
	walSteady   = 10 * time.Second
	walIdleStep = 1 << 20 // how far, in bytes, other traffic must get before the slot is told

	terminateWait = 5 * time.Second
)

// walStream is one connection on which the server sends what was committed.
type walStream struct {
	conn   *pgconn.PgConn
	net    net.Conn
	prefix string     // of this outbox's messages
	mu     sync.Mutex // of writing
}

func (st *walStream) cut() { _ = st.net.Close() }

// tell says how far everything is received, and confirmed. It is what lets the server forget.
func (st *walStream) tell(ctx context.Context, received, confirmed pglogrepl.LSN, ping bool) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	_ = st.net.SetWriteDeadline(time.Now().Add(walSilence))
	return pglogrepl.SendStandbyStatusUpdate(ctx, st.conn, pglogrepl.StandbyStatusUpdate{
		WALWritePosition: max(received, confirmed), WALFlushPosition: confirmed, WALApplyPosition: confirmed, ReplyRequested: ping,
	})
}

// start reads what earlier sessions left, and begins the stream.
func (s *walSession) start(ctx context.Context, state slotState) error {
	s.recorded = state.recorded
	s.told.Store(uint64(state.recorded))
	stream, err := s.connect(ctx)
	if err != nil {
		return err
	}
	if err := s.load(ctx); err != nil {
		stream.cut()
		return err
	}
	s.setStream(stream, nil)
	s.started.Store(true)
	s.running.Go(func() { s.read(stream) })
	s.running.Go(s.tick)
	return nil
}

// load reads which messages beyond the confirmed position are settled, and which keys have something in the tables.
func (s *walSession) load(ctx context.Context) error {
	rows, _ := s.store.cfg.Pool.Query(ctx, s.store.wal.Settled, s.recorded.String())
	var seq int64
	var also []int64
	_, err := pgx.ForEachRow(rows, []any{&seq, &also}, func() error {
		for _, n := range append(also, seq) {
			s.window.known(n, 0)
		}
		return nil
	})
	if err != nil {
		return s.store.outboxError("read what is settled", err)
	}
	rows, _ = s.store.cfg.Pool.Query(ctx, s.store.wal.Busy)
	var key []byte
	var shard int
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&shard, &key, &n}, func() error {
		s.window.occupy(string(key), shard, n)
		return nil
	})
	return s.store.outboxError("read which keys are in the tables", err)
}

// connect begins the stream at what is recorded. A walsender that still has the slot belongs to a connection of this
// session, or to a relay whose time is over: nobody else is elected.
func (s *walSession) connect(ctx context.Context) (*walStream, error) {
	state, err := s.store.slotState(ctx, s.store.cfg.Pool, s.tables.owner)
	switch {
	case err != nil:
		return nil, err
	case !state.mine:
		return nil, fmt.Errorf("%w: the slot has gone to another relay", outbox.ErrLeaseLost)
	}
	if err := state.unusable(); err != nil {
		return nil, err
	}
	if _, err := s.store.cfg.Pool.Exec(ctx, s.store.wal.Started, s.tables.owner); err != nil {
		return nil, s.store.outboxError("slot", err)
	}
	if state.activePID != 0 {
		if err := s.store.terminate(ctx, state); err != nil {
			return nil, err
		}
	}
	conn, err := s.store.replicationConn(ctx)
	if err != nil {
		return nil, databaseError{fmt.Errorf("pgxstore: outbox: connect for replication (the role needs REPLICATION, and no pooler between): %w", err)}
	}
	err = pglogrepl.StartReplication(ctx, conn, `"`+state.slot+`"`, s.restart(), pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "messages 'true'", "publication_names '\"" + state.slot + "\"'"},
	})
	if err != nil {
		_ = conn.Close(ctx)
		return nil, databaseError{fmt.Errorf("pgxstore: outbox: read slot %q: %w", state.slot, err)}
	}
	return &walStream{conn: conn, net: conn.Conn(), prefix: "txonce:" + state.slot}, nil
}

// restart returns where the stream is to begin. What is settled up to there is forgotten, and what a Settle confirms at the same
// time must not be forgotten beyond: that would be taken for new when the stream brings it again. From here on nothing is
// confirmed until it has.
func (s *walSession) restart() pglogrepl.LSN {
	s.settling.Lock()
	defer s.settling.Unlock()
	s.window.restart()
	return s.recorded
}

// replicationConn connects as Config.Direct says, or else as the pool does.
func (s *Store) replicationConn(ctx context.Context) (*pgconn.PgConn, error) {
	pool := s.cfg.Pool.Config()
	cfg := pool.ConnConfig.Copy()
	switch {
	case s.cfg.Direct != nil:
		cfg = s.cfg.Direct.Copy()
	case pool.BeforeConnect != nil:
		if err := pool.BeforeConnect(ctx, cfg); err != nil {
			return nil, err
		}
	}
	params := maps.Clone(cfg.RuntimeParams)
	if params == nil {
		params = map[string]string{}
	}
	params["replication"] = "database"
	cfg.RuntimeParams = params
	return pgconn.ConnectConfig(ctx, &cfg.Config)
}

// terminate ends the walsender that has the slot, and waits until it is gone.
func (s *Store) terminate(ctx context.Context, state slotState) error {
	ctx, cancel := context.WithTimeout(ctx, terminateWait)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for pid := state.activePID; ; {
		if _, err := s.cfg.Pool.Exec(ctx, s.wal.Terminate, pid); err != nil {
			return databaseError{fmt.Errorf("pgxstore: outbox: slot %q is read by process %d of the server, whose relay is dead: terminate it, or GRANT pg_signal_backend to this role: %w", state.slot, pid, err)}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return databaseError{fmt.Errorf("pgxstore: outbox: slot %q is still read by process %d of the server after pg_terminate_backend: %w", state.slot, pid, ctx.Err())}
		}
		now, err := s.slotState(ctx, s.cfg.Pool, pgtype.UUID{})
		if err != nil {
			return err
		}
		if now.activePID == 0 {
			return nil
		}
		pid = now.activePID
	}
}

func (s *walSession) setStream(stream *walStream, failed error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.since = time.Now()
	}
	s.stream, s.failed = stream, failed
	if failed != nil {
		s.lastFailed, s.lastFailure = time.Now(), failed
	}
}

// read takes in the stream, and begins another one when it breaks, until Close.
func (s *walSession) read(stream *walStream) {
	defer func() { s.setStream(nil, nil) }()
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		if stream != nil {
			began := time.Now()
			err := s.receive(stream)
			stream.cut()
			if time.Since(began) > walSteady { // else the next one may break at the same place
				pause = 50 * time.Millisecond
			}
			s.setStream(nil, databaseError{fmt.Errorf("pgxstore: outbox: the stream broke: %w", err)})
		}
		if !s.wait(pause) {
			return
		}
		ctx, cancel := context.WithTimeout(s.background, walSilence)
		next, err := s.connect(ctx)
		cancel()
		if stream = next; err != nil {
			s.setStream(nil, err)
			if errors.Is(err, outbox.ErrLeaseLost) {
				return
			}
			continue
		}
		s.setStream(stream, nil)
		if s.background.Err() != nil {
			stream.cut() // Close may have come too early to see it
		}
	}
}

func (s *walSession) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-s.background.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (s *walSession) tell(ctx context.Context, stream *walStream, ping bool) error {
	received, _ := s.window.received()
	return stream.tell(ctx, received, pglogrepl.LSN(s.told.Load()), ping)
}
