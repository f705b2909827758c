package deduptest

import (
	"context"
	"errors"
	"testing"

	"github.com/txonce/txonce/dedup/driver"
)

// positionCases are about how far the messages of a source are handled. A store without driver.Positions fails them.

// positionsBusy moves the positions of two members while messages are handled, and sessions begin.
func positionsBusy[TTx any](t *testing.T, e *env[TTx]) {
	nodes := []sourcePositions[TTx]{positionsOf(t, e.node(t)), positionsOf(t, e.node(t))}
	ctx := bounded(t)
	const rounds, partitions = 25, 8
	e.together(t, 4, func(i int) error {
		node := nodes[i%2]
		if i >= 2 {
			for n := range rounds {
				if err := retry(ctx, node.store, func() error {
					_, err := e.handle(ctx, node.store, record(string(rune('a'+i))+" "+string(rune('a'+n))))
					return err
				}); err != nil {
					return err
				}
			}
			return nil
		}
		return moveRounds(ctx, node, int32(i)*partitions, partitions, rounds) //nolint:gosec // small
	})
	for _, row := range nodes[0].list(t, "") {
		if row.Next != rounds {
			t.Errorf("partition %d is at %d, want %d", row.Partition, row.Next, rounds)
		}
	}
}

func moveRounds[TTx any](ctx context.Context, p sourcePositions[TTx], first, partitions int32, rounds int64) error {
	moves := make([]driver.PositionMove, partitions)
	var history int64
	for i := range moves {
		id := partition(first + int32(i)) //nolint:gosec // small
		if err := retry(ctx, p.store, func() (err error) {
			history, err = p.ChangePosition(ctx, id, func(*driver.Position) (*driver.Position, error) {
				return &driver.Position{Epoch: 1, Open: true}, nil
			})
			return err
		}); err != nil {
			return err
		}
		moves[i] = driver.PositionMove{PositionID: id, Epoch: 1}
	}
	for n := range rounds {
		for i := range moves {
			moves[i].From, moves[i].Next = n, n+1
		}
		if err := retry(ctx, p.store, func() error {
			left, err := p.MovePositions(ctx, history, moves)
			if err == nil && len(left) > 0 {
				return errors.New("moves were left out")
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}
