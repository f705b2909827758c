package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/migrations"
)

// schema holds the statements of a Store, and finds the schema whose tables they name.
type schema struct {
	pool   *pgxpool.Pool
	chosen string // Config.Schema
	hooked bool   // a hook of the pool may set the search_path

	resolved  atomic.Bool // the statements include the schema, see resolve
	resolving sync.Mutex

	plain      dialect.Postgres // only for statements without a table; these need no resolve
	sql        dialect.Postgres
	writes     dialect.PostgresOutboxWrite
	outbox     dialect.PostgresOutbox
	operations dialect.Operator
}

func newSchema(pool *pgxpool.Pool, chosen string, hooked bool) *schema {
	s := &schema{pool: pool, chosen: chosen, hooked: hooked, plain: dialect.NewPostgres("")}
	if chosen != "" {
		s.use(chosen)
	}
	return s
}

// querier is a transaction, a connection or the pool.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// resolve finds the schema that unqualified table names refer to, once, and puts it into all statements. It uses q,
// because a transaction that waited here for a second connection of its pool might wait forever.
func (s *schema) resolve(ctx context.Context, q querier) error {
	if s.resolved.Load() {
		return nil
	}
	var session, fresh string
	switch err := q.QueryRow(ctx, s.plain.Schema).Scan(&session, nil, &fresh, nil, nil, nil); {
	case errors.As(err, new(*pgconn.PgError)):
		return fmt.Errorf("pgxstore: find the schema: %w", err)
	case err != nil:
		return database.Errorf("pgxstore: find the schema: %w", err)
	}
	if q == querier(s.pool) && fresh != "" && !s.hooked {
		// the application, or another client of a pooler, has changed the session
		session = fresh
	}
	found, err := database.ChooseSchema(session, fresh)
	switch {
	case err != nil:
		return err
	case found == "":
		return s.wanted().Missing()
	}
	s.resolving.Lock()
	defer s.resolving.Unlock()
	if !s.resolved.Load() {
		s.use(found)
	}
	return nil
}

// use sets the statements. Only newSchema and resolve call it, before any statement is read.
func (s *schema) use(name string) {
	s.sql = dialect.NewPostgres(name)
	s.writes = dialect.NewPostgresOutboxWrite(name)
	s.outbox = dialect.NewPostgresOutbox(name)
	s.operations = dialect.NewPostgresOperator(name)
	s.resolved.Store(true)
}

// checkSchema rejects tables of another release, and a schema that misses one.
func (s *schema) checkSchema(ctx context.Context) error {
	if err := s.resolve(ctx, s.pool); err != nil {
		return err
	}
	var version, worksWith int
	err := s.pool.QueryRow(ctx, s.sql.SchemaVersion).Scan(&version, &worksWith)
	switch {
	case isUndefined(err):
		return s.wanted().Missing()
	case err != nil:
		return database.Errorf("pgxstore: read the schema's version: %w", err)
	}
	if err := s.wanted().Check(version, worksWith); err != nil {
		return err
	}
	switch _, err := s.pool.Exec(ctx, s.sql.SchemaTables); {
	case isUndefined(err):
		return s.wanted().Dropped(err, version)
	case err != nil:
		return database.Errorf("pgxstore: read the schema's tables: %w", err)
	}
	return nil
}

// checkNumbers fails if the sequence of the outbox is behind the numbers that are in use. A program without an outbox
// need not have its tables, and one that uses an outbox gets ErrSchema from it.
func (s *schema) checkNumbers(ctx context.Context) error {
	err := claims.CheckPostgresNumbers(database, func(query string, dest ...any) error {
		return s.pool.QueryRow(ctx, query).Scan(dest...)
	}, s.outbox.Numbers)
	if isUndefined(err) {
		return nil
	}
	return err
}

// wanted returns what the checks of the schema and their errors need.
func (s *schema) wanted() claims.Schema {
	where := " in search_path"
	if s.chosen != "" {
		where = fmt.Sprintf(" in schema %q", s.chosen)
	}
	return claims.Schema{Owner: database, Where: where, HowTo: howToMigrate, Known: migrations.Latest("postgres")}
}

// qualifier returns the prefix for table names in statements that users copy from error messages.
func (s *schema) qualifier() string {
	if s.chosen == "" {
		return ""
	}
	return `"` + s.chosen + `".`
}
