package engine

import (
	"context"
	"time"

	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/claims"
)

// UseWindow registers a window with a statement that returns what it wrote.
func UseWindow(ctx context.Context, db Queryer, statement string, w claims.Window) (time.Time, error) {
	var until Instant
	err := db.QueryRowContext(ctx, statement, w.Consumer, w.Seconds, driver.UseFor.Seconds()).Scan(&until)
	return until.Time, err
}
