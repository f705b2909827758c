package mysql

import (
	"context"
	"database/sql"
)

// Newer inserts two rows of one object. The server counts 1 for a row that is inserted, 2 for one that is changed, and
// for one that stays as it is 0 or, if the driver has set CLIENT_FOUND_ROWS, 1. So the statement changes the row of a
// newer version twice, which counts 3 or 4, and leaves that of any other version alone, which counts 0 or 2.
func (d *DB) Newer(ctx context.Context, tx *sql.Tx, object string, version int64) (bool, error) {
	done, err := tx.ExecContext(ctx, d.sql.Newer, object, version, object, version)
	if err != nil {
		return false, err
	}
	counted, err := done.RowsAffected()
	return counted > 2, err
}
