package mysql

import (
	"context"
	"fmt"

	"github.com/txonce/txonce/adapters/sqlstore/internal/engine"
	"github.com/txonce/txonce/internal/claims"
)

// CheckNumbers implements engine.Tables. AUTO_INCREMENT of outbox_messages numbers the messages. Rows of outbox_parked
// do not move it, so it is behind them after the latter were restored into new tables.
func (d *DB) CheckNumbers(ctx context.Context) error {
	var used int64
	if err := d.cfg.DB.QueryRowContext(ctx, d.box.Numbers).Scan(&used); err != nil {
		return engine.Database.Errorf("sqlstore: read the numbers of the outbox: %w", err)
	}
	if used == 0 {
		return nil
	}
	next, err := d.nextNumber(ctx)
	if err != nil {
		return engine.Database.Errorf("sqlstore: read the numbers of the outbox: %w", err)
	}
	return claims.CheckNumbers(engine.Database, "AUTO_INCREMENT of outbox_messages", "outbox_parked", next-1, used,
		fmt.Sprintf("ALTER TABLE outbox_messages AUTO_INCREMENT = %d;", used+1))
}

// nextNumber returns the number of the next message. MySQL keeps its answer for a day, unless the session forbids that,
// and shows NULL for 1.
func (d *DB) nextNumber(ctx context.Context) (next int64, err error) {
	conn, err := d.cfg.DB.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, `SET /*!80000 @@SESSION.information_schema_stats_expiry = 0, */ @txonce_numbers = NULL`); err != nil {
		return 0, err
	}
	err = conn.QueryRowContext(ctx, `SELECT COALESCE(MAX(COALESCE(auto_increment, 1)), 9223372036854775807) FROM information_schema.tables
WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = 'outbox_messages'`, engine.Nullable(d.cfg.Schema)).Scan(&next)
	if _, reset := conn.ExecContext(ctx, `SET /*!80000 @@SESSION.information_schema_stats_expiry = DEFAULT, */ @txonce_numbers = NULL`); err == nil {
		err = reset
	}
	return next, err
}
