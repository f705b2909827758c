package losses

import (
	"context"
	"errors"
	"time"

	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/observe"
)

// Each process that commits messages of a consumer has a row, with a number of its own as the partition. A row whose
// process has not written it for staleAfter may be taken by another one: a loss is reported only after the claims were
// looked up, so the former owner, if it lives, takes another row without harm.
const (
	mostRows   = 256
	staleAfter = 15 * time.Minute
)

func isChanged(err error) bool { return errors.Is(err, driver.ErrHistoryChanged) }

// stamp is how a time is written in rows and errors.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func (w *Watch) id(partition int32) driver.PositionID {
	return driver.PositionID{Consumer: w.cfg.Name, Source: w.cfg.Source, Partition: partition}
}

// row reads the row of this process on a server that accepts writes, and the number of its history.
func (w *Watch) row(ctx context.Context) (row *driver.Position, history int64, err error) {
	history, err = w.store.ChangePosition(ctx, w.id(w.beat.Partition),
		func(now *driver.Position) (*driver.Position, error) {
			row = nil
			if now != nil {
				c := *now
				row = &c
			}
			return nil, nil
		})
	return row, history, err
}

// rows returns the rows of all processes.
func (w *Watch) rows(ctx context.Context) (map[int32]driver.Position, error) {
	all, err := w.store.ListPositions(ctx, w.cfg.Name)
	found := map[int32]driver.Position{}
	for _, row := range all {
		if row.Source == w.cfg.Source {
			found[row.Partition] = row
		}
	}
	return found, err
}

// lastBefore returns when a row was last written before began; if none was, it returns began.
func lastBefore(rows map[int32]driver.Position, began time.Time) time.Time {
	var last time.Time
	for _, row := range rows {
		if row.Updated.Before(began) && row.Updated.After(last) {
			last = row.Updated
		}
	}
	if last.IsZero() {
		return began
	}
	return last
}

// free returns the numbers of the rows that this process may take, the best first.
func (w *Watch) free(rows map[int32]driver.Position, now time.Time) (partitions []int32) {
	own := w.beat.Partition
	row, there := rows[own]
	if w.beat.epoch > 0 && (!there || row.Epoch == w.beat.epoch) {
		partitions = append(partitions, own)
	}
	for p := range int32(mostRows) {
		if row, there := rows[p]; !there || now.Sub(row.Updated) >= staleAfter {
			partitions = append(partitions, p)
		}
	}
	return append(partitions, mostRows-1)
}

// take makes the row of this process its own again, or takes another one, and writes loss there. n claims are committed.
func (w *Watch) take(ctx context.Context, rows map[int32]driver.Position, loss *observe.Loss, n int64) (
	b beat, history int64, err error,
) {
	for _, partition := range w.free(rows, time.Now()) {
		was, there := rows[partition]
		taken := false
		history, err = w.store.ChangePosition(ctx, w.id(partition), func(now *driver.Position) (*driver.Position, error) {
			next := driver.Position{Epoch: 1}
			if taken = now == nil && !there || now != nil && there && now.Epoch == was.Epoch; !taken {
				return nil, nil // another process was quicker
			}
			if now != nil {
				next = *now
				next.Epoch++
			}
			if loss != nil {
				next.Log = stamp(loss.From) + "/" + stamp(loss.To)
				next.Rewind = driver.Rewind{
					// the database replaces a time that the row does not have
					At: time.Unix(next.Epoch, 0), From: next.Next + loss.Messages, Lost: next.Next, To: next.Next + loss.Messages,
				}
				next.Next += loss.Messages
			}
			b = beat{
				PositionMove: driver.PositionMove{PositionID: w.id(partition), Epoch: next.Epoch, Next: next.Next},
				n:            n, at: time.Now(), epoch: next.Epoch,
			}
			return &next, nil
		})
		if err != nil || taken {
			return b, history, err
		}
	}
	return b, 0, errors.New("other processes took all rows at the same time")
}
