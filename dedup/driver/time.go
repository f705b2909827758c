package driver

import (
	"fmt"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/idtime"
)

// MaxClockSkew is how far the clocks of a machine and of its database may differ. If they differ more, a message that
// seems to come from the future fails with ErrClocks, because either clock may be wrong.
const MaxClockSkew = 5 * time.Minute

// ValidateTime returns an error if the Time of r is more than dedup.MaxAhead ahead of database, the time of the
// database's clock right after the claim of a new row. machine is the time of this machine's clock at the same moment.
// The database's clock decides, because all processes share it. If the two clocks agree, the message is at fault, and
// the error is dedup.ErrFuture. If they differ by more than MaxClockSkew, the error is dedup.ErrClocks, which a Store
// must make Retryable.
func ValidateTime(r dedup.Record, database, machine time.Time) error {
	ahead := r.Time.Sub(database)
	if ahead <= dedup.MaxAhead {
		return nil
	}
	if skew := machine.Sub(database); skew.Abs() > MaxClockSkew {
		return fmt.Errorf("%w by %v: %v is of %v, the database's clock says %v, this machine's clock says %v; set the clock that is wrong",
			dedup.ErrClocks, skew.Abs().Round(time.Second), r.Key, utc(r.Time), utc(database), utc(machine))
	}
	return fmt.Errorf("%w: %v is of %v, %v ahead of the database's clock, more than %v%s",
		dedup.ErrFuture, r.Key, utc(r.Time), ahead.Round(time.Second), dedup.MaxAhead, idtime.UnitHint(r.Time))
}

func utc(t time.Time) string { return t.UTC().Format(time.RFC3339) }
