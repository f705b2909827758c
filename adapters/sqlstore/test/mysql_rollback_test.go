package sqlstore_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/wireproxy"
)

// The Store asks for uncommitted rows in a transaction of its own. If the ROLLBACK of that transaction fails, its
// connection is not used again: it would go on to read uncommitted rows, and to hold locks.
func TestMySQLRollbackThatFails(t *testing.T) {
	for _, server := range []string{"mariadb", "mysql"} {
		t.Run(server, func(t *testing.T) {
			d := openMySQL(t)
			asks, failed := false, false
			through, _ := wireproxy.ThroughMySQL(t, d.dsn, wireproxy.Config{Decide: func(f wireproxy.Frame) wireproxy.Action {
				asks = asks || strings.Contains(f.Statement, "READ UNCOMMITTED")
				if !asks || failed || f.FromServer || f.Statement != "ROLLBACK" {
					return wireproxy.Action{}
				}
				failed = true
				return wireproxy.Action{Kind: wireproxy.Answer, Code: "1205"}
			}})
			s := d.open(t, through, deduptest.Options{})
			claim(t, s, record("k"))
			held, err := s.HeldKeys(t.Context(), []dedup.Key{record("k").Key})
			if err != nil || held[0] {
				t.Fatalf("HeldKeys = %v, %v", held, err)
			}
			if !failed {
				t.Fatal("no ROLLBACK failed")
			}
			// The lock of the row that HeldKeys has found ends with the connection.
			for began := time.Now(); ; <-time.After(20 * time.Millisecond) {
				err := inTx(t.Context(), d.db, nil, func(tx *sql.Tx) error {
					var n int
					err := tx.QueryRow("SELECT 1 FROM processed_messages FOR UPDATE SKIP LOCKED").Scan(&n)
					return err
				})
				if err == nil {
					return
				}
				if !errors.Is(err, sql.ErrNoRows) || time.Since(began) > 10*time.Second {
					t.Fatalf("the row is locked: %v", err)
				}
			}
		})
	}
}
