package positions

import (
	"time"

	"github.com/txonce/txonce/dedup/driver"
)

// row is a row of source_positions. Times are microseconds since 1970; 0: none.
type row struct {
	consumer, source, log []byte // nil: there is no row
	partition             int32
	next, epoch, suspect  int64
	open                  bool
	tries                 int
	at, from, lost, to    int64
	updated               int64
}

func (r *row) dest() []any {
	return []any{
		&r.consumer, &r.source, &r.partition, &r.log, &r.next, &r.epoch, &r.open, &r.suspect, &r.tries,
		&r.at, &r.from, &r.lost, &r.to, &r.updated,
	}
}

func (r *row) position() *driver.Position {
	if r.consumer == nil {
		return nil
	}
	return &driver.Position{
		PositionID: driver.PositionID{Consumer: string(r.consumer), Source: string(r.source), Partition: r.partition},
		Log:        string(r.log), Next: r.next, Epoch: r.epoch, Open: r.open, Suspect: r.suspect, Tries: r.tries,
		Rewind:  driver.Rewind{At: instant(r.at), From: r.from, Lost: r.lost, To: r.to},
		Updated: instant(r.updated),
	}
}

func instant(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}
