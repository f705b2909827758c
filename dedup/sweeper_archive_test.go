package dedup_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

// An archive that fails, panics or ends its goroutine keeps the keys, and the sweeper tries again.
func TestSweeperDeletesWhatItHasArchived(t *testing.T) {
	for _, test := range []struct {
		name string
		fail func() error
		says string
	}{
		{"an error", func() error { return errors.New("no space left") }, "no space left"},
		{"a panic", func() error { panic("a bug") }, "a bug"},
		{"Goexit", func() error { runtime.Goexit(); return nil }, "Goexit"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := deduptest.NewDatabase().NewStore()
				key := dedup.Key{Consumer: "billing", ID: "1"}
				rec := dedup.Record{Key: key, Window: 15 * 24 * time.Hour}
				if err := store.InTx(t.Context(), []dedup.Record{rec}, func(*deduptest.Tx, []dedup.Claim) error { return nil }); err != nil {
					t.Fatal(err)
				}
				<-time.After(16 * 24 * time.Hour)
				failing, archived := true, 0
				var alarms []error
				s := newSweeper(t, dedup.SweeperConfig{
					Store: store,
					Archive: func(_ context.Context, expired []dedup.Expired) error {
						if failing {
							return test.fail()
						}
						archived += len(expired)
						return nil
					},
					OnAlarm: func(a dedup.Alarm) {
						if a.Err != nil {
							alarms = append(alarms, a.Err)
						}
					},
				})
				runFor(t, s, 10*time.Minute)
				if _, known, err := store.Lookup(t.Context(), key); err != nil || !known {
					t.Errorf("the key is known: %v (error %v)", known, err)
				}
				if len(alarms) < 3 || !strings.Contains(alarms[0].Error(), test.says) {
					t.Errorf("alarms %v, want some that say %q", alarms, test.says)
				}
				failing = false
				runFor(t, s, 10*time.Minute)
				if _, known, err := store.Lookup(t.Context(), key); err != nil || known || archived != 1 {
					t.Errorf("the key is known: %v (error %v), archived %d times", known, err, archived)
				}
			})
		})
	}
}

func TestSweeperWithAnArchiveNeedsAnArchiver(t *testing.T) {
	cfg := dedup.SweeperConfig{Store: purgerFunc(nil), Archive: func(context.Context, []dedup.Expired) error { return nil }}
	if _, err := dedup.NewSweeper(cfg); err == nil || !strings.Contains(err.Error(), "SweeperConfig.Archive") {
		t.Errorf("NewSweeper = %v", err)
	}
}

// archiveTo appends a line of JSON for each key to a file, and returns when the disk has them. A batch that is written
// again after a crash is in the file twice: whoever reads it takes each hash and time of expiry once.
func archiveTo(file *os.File) func(ctx context.Context, expired []dedup.Expired) error {
	return func(_ context.Context, expired []dedup.Expired) error {
		var lines bytes.Buffer
		for _, e := range expired {
			line, err := json.Marshal(map[string]any{
				"hash": fmt.Sprintf("%x", e.Hash), "consumer": e.Key.Consumer, "tenant": e.Key.Tenant, "id": e.Key.ID,
				"fingerprint": fmt.Sprintf("%x", e.Fingerprint), "expired": e.ExpiresAt.UTC(), "result": e.Result,
			})
			if err != nil {
				return err
			}
			lines.Write(append(line, '\n'))
		}
		if _, err := file.Write(lines.Bytes()); err != nil {
			return err
		}
		return file.Sync()
	}
}

func ExampleSweeperConfig_archive() {
	file, err := os.CreateTemp("", "claims-*.ndjson")
	if err != nil {
		panic(err)
	}
	defer os.Remove(file.Name())
	db := deduptest.NewDatabase() // in a program: pgxstore or sqlstore
	store := db.NewStore()
	rec := dedup.Record{Key: dedup.Key{Consumer: "billing", ID: "order-42"}}
	ctx, cancel := context.WithCancel(context.Background())
	if err := store.InTx(ctx, []dedup.Record{rec}, func(*deduptest.Tx, []dedup.Claim) error { return nil }); err != nil {
		panic(err)
	}
	db.Age(16 * 24 * time.Hour)

	sweeper, err := dedup.NewSweeper(dedup.SweeperConfig{
		Store: store, Archive: archiveTo(file), Logger: slog.New(slog.DiscardHandler),
		Trace: &dedup.SweepTrace{Swept: func(_ context.Context, e dedup.SweepEvent) {
			if e.Result.Done {
				cancel() // a program sweeps until it ends
			}
		}},
	})
	if err != nil {
		panic(err)
	}
	if err := sweeper.Run(ctx); err != nil {
		panic(err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		panic(err)
	}
	var archived struct{ Consumer, ID string }
	if err := json.NewDecoder(file).Decode(&archived); err != nil {
		panic(err)
	}
	fmt.Println(archived.Consumer, archived.ID)
	// Output: billing order-42
}
