package pgxstore

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/claims"
)

// sentClaim is a claim that was sent with COMMIT. Its connection can do nothing else until the answer is read.
type sentClaim struct {
	claim    *claim
	recs     []dedup.Record
	conn     *pgxpool.Conn
	pipeline *pgconn.Pipeline
	abandon  context.CancelFunc // makes pgx cancel the claim on the server and close the connection
}

// chainable reports whether the pool allows a claim to travel with COMMIT. A hook that runs between two uses of a connection, for example to
// set a tenant, must not be left out.
func chainable(pool *pgxpool.Config) bool {
	return pool.ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement &&
		pool.PrepareConn == nil && pool.BeforeAcquire == nil && pool.AfterRelease == nil //nolint:staticcheck // deprecated, but it still runs
}

// chained holds the statements that travel together, prepared on one connection. pgx does not know them, so the application's own BEGIN
// and COMMIT stay as they are.
type chained struct{ commit, begin, claim *pgconn.StatementDescription }

// prepare returns the statements, which take round trips the first time on each connection. After an error, which the claim will also
// meet, it returns nil.
func (s *Store) prepare(ctx context.Context, conn *pgconn.PgConn) *chained {
	if st, ok := conn.CustomData()[s.sql.InsertOne].(*chained); ok {
		return st
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ClaimTimeout)
	defer cancel()
	var st chained
	for sql, to := range map[string]**pgconn.StatementDescription{
		`commit`: &st.commit, `begin isolation level read committed`: &st.begin, s.sql.InsertOne: &st.claim,
	} {
		sum := sha256.Sum256([]byte(s.sql.InsertOne + sql)) // stores with different schemas may share a connection
		var err error
		if *to, err = conn.Prepare(ctx, fmt.Sprintf("txonce_%x", sum[:16]), sql, nil); err != nil {
			return nil
		}
	}
	conn.CustomData()[s.sql.InsertOne] = &st
	return &st
}

// commit sends COMMIT, BEGIN and the claim of next, and returns when COMMIT is answered. Until then nothing but the limit of COMMIT ends
// the wait: neither ctx nor the limit of the claim.
func (q *sequence) commit(ctx context.Context, next *claim) error {
	conn := q.conn
	row := &next.Plan.Rows[0]
	var build pgx.ExtendedQueryBuilder
	if err := build.Build(conn.Conn().TypeMap(), q.prepared.claim, q.store.args(row, next.idleLimit)); err != nil {
		return fmt.Errorf("pgxstore: not committed: claim the next message: %w", err)
	}
	own, abandon := context.WithCancel(context.WithoutCancel(ctx))
	limit := time.AfterFunc(q.store.endWithin, abandon)
	defer limit.Stop()
	p := conn.Conn().PgConn().StartPipeline(own)
	p.SendQueryPrepared(q.prepared.commit.Name, nil, nil, nil)
	p.SendPipelineSync()
	p.SendQueryPrepared(q.prepared.begin.Name, nil, nil, nil)
	p.SendQueryStatement(q.prepared.claim, build.ParamValues, build.ParamFormats, build.ResultFormats)
	p.SendPipelineSync()
	sent := &sentClaim{claim: next, recs: q.next, conn: conn, pipeline: p, abandon: abandon}
	err := p.Flush()
	if err == nil {
		err = committed(p)
	}
	if err != nil {
		sent.drop()
		q.store.discard(ctx, conn.Conn())
		if missingStatement(err) != nil { // the application has deallocated what prepare has prepared
			return database.Errorf("pgxstore: not committed: %w", err)
		}
		return commitError(err)
	}
	next.sent, q.sent = sent, sent
	return nil
}

// committed reads the answer to COMMIT, up to its Sync.
func committed(p *pgconn.Pipeline) error {
	tag, err := tagOf(p)
	if err == nil {
		_, err = p.GetResults() // the Sync
	}
	if err == nil && tag.String() == "ROLLBACK" {
		err = pgx.ErrTxCommitRollback
	}
	return err
}

// tagOf reads the result of a statement that returns no rows.
func tagOf(p *pgconn.Pipeline) (pgconn.CommandTag, error) {
	results, err := p.GetResults()
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	reader, ok := results.(*pgconn.ResultReader)
	if !ok {
		return pgconn.CommandTag{}, fmt.Errorf("pgxstore: the server sent %T instead of a result", results)
	}
	return reader.Close()
}

// drop cancels the claim and closes the connection, unless the claim is answered already. Its transaction is still open then, and the caller
// closes the connection.
func (s *sentClaim) drop() {
	s.abandon()
	_ = s.pipeline.Close()
}

// read reads the answer to the claim. The end of ctx cancels the claim and closes the connection.
func (s *sentClaim) read(ctx context.Context, rows []claims.Row) error {
	stop := context.AfterFunc(ctx, s.abandon)
	defer stop()
	defer s.abandon()
	err := s.readAll(rows)
	if closed := s.pipeline.Close(); err == nil {
		err = closed
	}
	return err
}

func (s *sentClaim) readAll(rows []claims.Row) error {
	if _, err := tagOf(s.pipeline); err != nil { // BEGIN
		return err
	}
	results, err := s.pipeline.GetResults()
	if err != nil {
		return err
	}
	reader, ok := results.(*pgconn.ResultReader)
	if !ok {
		return fmt.Errorf("pgxstore: the server sent %T instead of a claim", results)
	}
	return s.claim.readOne(firstRow{rows: pgx.RowsFromResultReader(s.conn.Conn().TypeMap(), reader)}, rows)
}
