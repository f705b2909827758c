package dedup_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// If the database's clock jumps ahead, keys expire whose messages may still be delivered again. Running sweepers delete
// none of them until the clock is set right or ConfirmClock returns true.
func TestSweepersRefuseAClockThatJumpsAhead(t *testing.T) {
	for _, end := range []string{"set right", "confirmed"} {
		t.Run(end, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var jump atomic.Int64
				db := deduptest.NewDatabase()
				db.Now = func() time.Time { return time.Now().Add(time.Duration(jump.Load())) }
				store := db.NewStore()
				key := dedup.Key{Consumer: "billing", ID: "1"}
				rec := dedup.Record{Key: key, Time: time.Now(), Window: 15 * 24 * time.Hour}
				claim := func() (v dedup.Verdict) {
					t.Helper()
					err := store.InTx(t.Context(), []dedup.Record{rec}, func(_ *deduptest.Tx, claims []dedup.Claim) error {
						v = claims[0].Verdict
						return nil
					})
					if err != nil {
						t.Fatal(err)
					}
					return v
				}
				claim()
				var alarms, asked atomic.Int64
				var confirmed atomic.Bool
				stop := make(chan struct{})
				for range 2 { // two nodes: the second must not delete what the first refuses to delete
					s := newSweeper(t, dedup.SweeperConfig{
						Store: db.NewStore(),
						OnAlarm: func(a dedup.Alarm) {
							if errors.Is(a.Err, dedup.ErrClock) {
								alarms.Add(1)
							}
						},
						ConfirmClock: func(expected, clock time.Time) bool {
							asked.Add(1)
							if ahead := clock.Sub(expected); ahead < 19*24*time.Hour || ahead > 21*24*time.Hour {
								t.Errorf("asked about %v, expected %v", clock, expected)
							}
							return confirmed.Load()
						},
					})
					go func() {
						ctx, cancel := context.WithCancel(t.Context())
						go func() { <-stop; cancel() }()
						_ = s.Run(ctx)
					}()
				}
				<-time.After(time.Hour)
				jump.Store(int64(20 * 24 * time.Hour))
				<-time.After(24 * time.Hour)
				if v := claim(); v != dedup.Duplicate {
					t.Fatalf("after a jump of the clock the key is %v", v)
				}
				if alarms.Load() == 0 || asked.Load() == 0 {
					t.Errorf("%d alarms, asked %d times", alarms.Load(), asked.Load())
				}
				if end == "confirmed" {
					confirmed.Store(true)
				} else {
					jump.Store(0)
				}
				<-time.After(10 * time.Minute)
				before := alarms.Load()
				_, known, err := store.Lookup(t.Context(), key)
				if err != nil || known != (end == "set right") {
					t.Errorf("the key is known: %v (error %v)", known, err)
				}
				<-time.After(20 * 24 * time.Hour)
				if _, known, err := store.Lookup(t.Context(), key); err != nil || known {
					t.Errorf("20 days later the key is known: %v (error %v)", known, err)
				}
				if alarms.Load() != before {
					t.Errorf("%d alarms after the clock was %s", alarms.Load()-before, end)
				}
				close(stop)
			})
		})
	}
}
