package pgxstore_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/txonce/txonce/internal/dialect"
)

// The last seq that a relay reads was assigned, however fast the sequence moves. Otherwise the watermark would pass
// messages that are enqueued later.
func TestOutboxReadsNoSeqBeforeItIsAssigned(t *testing.T) {
	servers(t, func(t *testing.T, server func(testing.TB) string) {
		db := newOutboxDB(t, server, 3)
		var writers sync.WaitGroup
		defer writers.Wait()
		for range 2 {
			writers.Go(func() {
				if _, err := db.pool.Exec(t.Context(),
					`SELECT count(nextval('outbox_seq')) FROM generate_series(1, 1000000)`); err != nil {
					t.Error(err)
				}
			})
		}
		db.exec(t, fmt.Sprintf(`DO $$
DECLARE last bigint := 0; server bigint; before bigint; began timestamptz := clock_timestamp();
BEGIN
	WHILE last < 2000000 LOOP
		before := last;
		SELECT l.last, l.server INTO last, server FROM (%s) AS l(last, server);
		IF last < before OR clock_timestamp() > began + interval '1 minute' THEN RAISE EXCEPTION 'the last seq is %%, and was %% before', last, before; END IF;
	END LOOP;
END $$`, dialect.NewPostgresOutbox("").Last))
	})
}
