package pgxstore_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox/driver"
	"github.com/txonce/txonce/outbox/outboxtest"
	"github.com/txonce/txonce/outbox/relay"
)

// Settings with which pgx cannot read txonce's values end the start at once, by name. Modes that ask for no texts
// accept them.
func TestRegisterRefusesFormats(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		d := newOutboxDB(t, server, 4)
		for _, test := range []struct{ mode, setting, value, want string }{
			{"exec", "bytea_output", "escape", "bytea_output is escape"},
			{"simple_protocol", "bytea_output", "escape", "bytea_output is escape"},
			{"exec", "datestyle", "SQL, DMY", "DateStyle is SQL, DMY"},
			{"cache_statement", "standard_conforming_strings", "off", "standard_conforming_strings is off"},
			{"cache_statement", "bytea_output", "escape", ""},
			{"cache_statement", "datestyle", "German", ""},
		} {
			cfg, err := pgxpool.ParseConfig(d.pool.Config().ConnString() + "&default_query_exec_mode=" + test.mode)
			if err != nil {
				t.Fatal(err)
			}
			cfg.ConnConfig.RuntimeParams[test.setting] = test.value
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			store := newStore(t, pgxstore.Config{Pool: pool})
			err = store.Register(t.Context(), "billing", 0)
			r, _ := relay.New(relay.Config{
				Queue: store, Publisher: new(outboxtest.FakePublisher),
				Logger: slog.New(slog.DiscardHandler),
			})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if test.want == "" {
				if err != nil {
					t.Errorf("%+v: Register = %v", test, err)
				}
			} else if ran := r.Run(ctx); !errors.Is(err, dedup.ErrSettings) || !strings.Contains(err.Error(),
				test.want) || !errors.Is(ran, driver.ErrSettings) {
				t.Errorf("%+v: Register = %v, Run = %v", test, err, ran)
			}
			cancel()
			pool.Close()
		}
	})
}
