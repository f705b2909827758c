package verdicts_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/testdb"
)

// transaction_timeout counts the time of the claim, too. While one message's claims are so slow that its handler has
// too little time left, and other messages commit, that message is not parked.
func TestASlowClaimBlamesNoHandler(t *testing.T) {
	for name, open := range map[string]func(t *testing.T, server string) *database{"pgxstore": pgxOn, "sqlstore": postgresOn} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const slowClaims = 5
			d, log := open(t, testdb.Postgres18(t)), &strings.Builder{}
			mustExec(t, d.admin, `CREATE SEQUENCE claims_of_slow`, fmt.Sprintf(`CREATE FUNCTION be_slow() RETURNS trigger LANGUAGE plpgsql AS $$
				BEGIN
					IF NEW.id = 'slow' AND nextval('claims_of_slow') <= %d THEN PERFORM pg_sleep(0.3); END IF;
					RETURN NEW;
				END $$`, slowClaims),
				`CREATE TRIGGER be_slow BEFORE INSERT ON processed_messages FOR EACH ROW EXECUTE FUNCTION be_slow()`)
			handle := func(ctx context.Context, run exec, m *consumer.Message) error {
				if err := run(`INSERT INTO effects (name) VALUES ('` + m.ID + `')`); err != nil || m.ID != "slow" {
					return err
				}
				return pause(ctx, 350*time.Millisecond)
			}
			w := d.start(t, handle, settings{
				session: "&transaction_timeout=600",
				backoff: func(int) time.Duration { return 5 * time.Millisecond }, log: log,
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			decided := make(chan error, 1)
			go func() { decided <- w.Process(ctx, message("slow")) }()
			var err error
			for n, done := 0, false; !done; n++ {
				select {
				case err = <-decided:
					done = true
				default:
					if failed := w.Process(ctx, message(fmt.Sprint("other", n))); failed != nil {
						t.Fatal(failed)
					}
				}
			}
			if parked := letters(t, w); err != nil || len(parked) > 0 || d.effects(t, "slow") != 1 {
				t.Errorf("%v, parked: %v\n%s", err, parked, log)
			}
		})
	}
}
