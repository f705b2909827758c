package consumer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/observe"
)

// process1 is a process whose source delivers each message once.
type process1 struct {
	c   *consumer.Consumer[tx]
	log *logs

	mu     sync.Mutex
	losses []observe.Loss
}

func newProcess(t testing.TB, db *deduptest.Database) *process1 {
	p := &process1{log: &logs{}}
	p.c = newConsumer(t, config{
		Store: consumertest.NewStoreOn(db), Logger: p.log.logger(), Window: dedup.MinWindow,
		Trace: &consumer.Trace{WentBack: func(_ context.Context, l observe.Loss) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.losses = append(p.losses, l)
		}},
	})
	return p
}

// handle handles messages from and below to, one in 10 ms.
func (p *process1) handle(t testing.TB, from, to int) {
	for i := from; i < to; i++ {
		process(t, p.c, msg(fmt.Sprint(i), "x"))
		<-time.After(10 * time.Millisecond)
	}
}

// want waits until a loss must have been noticed, and compares what was reported.
func (p *process1) want(t testing.TB, want int) []observe.Loss {
	t.Helper()
	<-time.After(3 * time.Minute)
	p.mu.Lock()
	defer p.mu.Unlock()
	if lines := p.log.lines("the database lost what it had committed"); len(p.losses) != want || lines != want {
		t.Fatalf("%d losses and %d lines, want %d: %+v", len(p.losses), lines, want, p.losses)
	}
	return p.losses
}

// ways are how a database goes back.
var ways = map[string]func(*deduptest.Database, *deduptest.Snapshot){
	"failover": (*deduptest.Database).Promote, "restore": (*deduptest.Database).Restore,
}

// What the database lost is reported once, with the time that the messages are from, and is in the database.
func TestLostCommitsAreReported(t *testing.T) {
	for name, back := range ways {
		for _, tt := range []struct {
			kept, lost, more int
			idle             bool // no message arrives afterwards
		}{
			{kept: 1, lost: 1},
			{kept: 100, lost: 1},
			{kept: 100, lost: 30, more: 10},
			{kept: 100, lost: 30, idle: true},
			{kept: 800, lost: 3000, more: 100},
			{lost: 600, more: 20},
			{lost: 1500},
			{kept: 1000, lost: 400, more: 800},
		} {
			if name == "restore" && tt.lost < 600 {
				continue // a backup is older than the row, which is written each five seconds
			}
			t.Run(fmt.Sprintf("%s %+v", name, tt), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					db := deduptest.NewDatabase()
					p := newProcess(t, db)
					defer p.c.Close()
					p.handle(t, 0, tt.kept)
					snapshot, from := db.Snapshot(), time.Now()
					p.handle(t, tt.kept, tt.kept+tt.lost)
					to := time.Now()
					back(db, snapshot)
					if !tt.idle {
						p.handle(t, 1e6, 1e6+tt.more)
					}
					l := p.want(t, 1)[0]
					if l.From.After(from) || from.Sub(l.From) > 5100*time.Millisecond || l.To.Before(to.Add(-11*time.Millisecond)) ||
						l.To.Sub(to) > 2*time.Second || l.Messages < int64(tt.lost) || l.Messages > int64(tt.lost)+510 ||
						l.Name != "billing" || !strings.Contains(l.Err.Error(), "send them again") {
						t.Errorf("lost %d messages from %v to %v: reported %+v", tt.lost, from, to, l)
					}
					var rows int
					for _, row := range positionsOf(t, db) {
						rows++
						if row.Rewind.From-row.Rewind.Lost != l.Messages || row.Rewind.At.IsZero() ||
							!strings.Contains(row.Log, "/") || row.Source != driver.SourceAcknowledged {
							t.Errorf("the database has %+v", row)
						}
					}
					if rows != 1 {
						t.Errorf("%d rows, want 1", rows)
					}
				})
			})
		}
	}
}

func positionsOf(t testing.TB, db *deduptest.Database) []driver.Position {
	rows, err := db.NewStore().ListPositions(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// Neither restarts nor outages nor failovers that lose nothing are reported, and an idle consumer writes nothing at all.
func TestNothingLostIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := deduptest.NewDatabase()
		p, other := newProcess(t, db), newProcess(t, db)
		defer other.c.Close()
		<-time.After(time.Hour)
		if rows := positionsOf(t, db); len(rows) != 0 {
			t.Errorf("consumers without messages have %d rows", len(rows))
		}
		n := 0
		for range 30 {
			p.handle(t, n, n+rand.IntN(60))
			other.handle(t, n+300, n+300+rand.IntN(60))
			n += 600
			switch rand.IntN(3) {
			case 0:
				db.Promote(db.Snapshot())
			case 1:
				db.Stop()
				<-time.After(time.Duration(rand.IntN(600)) * time.Second)
				db.Start()
			case 2: // a restart of the process
				p.want(t, 0)
				p.c.Close()
				p = newProcess(t, db)
			}
		}
		// After the Window nobody can tell, because claims are forgotten then.
		<-time.After(dedup.MinWindow)
		db.Promote(deduptest.NewDatabase().Snapshot())
		p.handle(t, n, n+10)
		other.handle(t, n+10, n+20)
		p.want(t, 0)
		other.want(t, 0)
		p.c.Close()
		if rows := positionsOf(t, db); len(rows) > 60 {
			t.Errorf("%d rows of dead processes", len(rows))
		}
	})
}

// Transactions are not acknowledged in the order of their commits, and their answers may come when the next server has
// answered others: what is lost is found all the same.
func TestLossesWithManyWorkers(t *testing.T) {
	for range 12 {
		synctest.Test(t, func(t *testing.T) {
			db := deduptest.NewDatabase()
			p := newProcess(t, db)
			defer p.c.Close()
			ctx, cancel := context.WithCancel(t.Context())
			var mu sync.Mutex
			var acknowledged []string
			var workers sync.WaitGroup
			for worker := range 8 {
				workers.Go(func() {
					for i := 0; ctx.Err() == nil; i++ {
						id := fmt.Sprint(worker, "-", i)
						process(t, p.c, msg(id, "x"))
						<-time.After(time.Duration(rand.IntN(5)) * time.Millisecond)
						mu.Lock()
						acknowledged = append(acknowledged, id)
						mu.Unlock()
						<-time.After(time.Duration(rand.IntN(30)) * time.Millisecond)
					}
				})
			}
			<-time.After(time.Duration(rand.IntN(7000)) * time.Millisecond)
			snapshot := db.Snapshot()
			<-time.After(time.Duration(rand.IntN(8)) * time.Millisecond)
			db.Promote(snapshot)
			<-time.After(time.Duration(rand.IntN(7000)) * time.Millisecond)
			cancel()
			workers.Wait()
			var lost int64
			for _, id := range acknowledged {
				if db.Count(id) == 0 {
					lost++
				}
			}
			reports := 0
			if lost > 0 {
				reports = 1
			}
			for _, l := range p.want(t, reports) {
				if l.Messages < lost {
					t.Errorf("%d messages are lost, and the report says %d at most", lost, l.Messages)
				}
			}
		})
	}
}

// A Subscriber that keeps positions reads again what was lost, so nothing is reported.
func TestLossesOfSubscribersWithPositions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := deduptest.NewDatabase()
		p := newProcess(t, db)
		defer p.c.Close()
		p.c.Positions()
		snapshot := db.Snapshot()
		p.handle(t, 0, 1000)
		db.Promote(snapshot)
		p.handle(t, 1000, 2000)
		p.want(t, 0)
		if rows := positionsOf(t, db); len(rows) != 0 {
			t.Errorf("rows %v", rows)
		}
	})
}

// frozenRow is a database that does not answer whoever asks for its rows of acknowledged messages.
type frozenRow struct {
	*consumertest.Store
	asked, ended chan struct{}
}

func (f *frozenRow) ChangePosition(ctx context.Context, _ driver.PositionID, _ func(*driver.Position) (*driver.Position, error),
) (int64, error) {
	close(f.asked)
	<-ctx.Done()
	close(f.ended)
	return 0, ctx.Err()
}

// After Close a Consumer writes no row, also if the database was being asked.
func TestCloseEndsTheLookForLosses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &frozenRow{consumertest.NewStore(), make(chan struct{}), make(chan struct{})}
		c := newConsumer(t, config{Store: f})
		process(t, c, msg("order-1", "x"))
		<-f.asked
		closed := time.Now()
		c.Close()
		<-f.ended
		if took := time.Since(closed); took != 0 {
			t.Errorf("the database was asked for another %v after Close", took)
		}
	})
}
