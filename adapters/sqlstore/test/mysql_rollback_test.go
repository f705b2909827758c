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

// A deadlock rolls the transaction back, and then the connection is cut. The Store asks on another connection whether
// the claim is committed: the message runs again, and is not parked with an unknown outcome.
func TestMySQLConnectionLostAfterADeadlock(t *testing.T) {
	const effect = "INSERT INTO effects (name) VALUES ('k')"
	for _, server := range []string{"mariadb", "mysql"} {
		t.Run(server, func(t *testing.T) {
			d := openMySQL(t)
			deadlock, cut := false, false
			through, _ := wireproxy.ThroughMySQL(t, d.dsn, wireproxy.Config{Decide: func(f wireproxy.Frame) wireproxy.Action {
				switch {
				case f.FromServer:
				case f.Statement == effect && !deadlock:
					deadlock = true
					return wireproxy.Action{Kind: wireproxy.Answer, Code: "1213"}
				case deadlock && !cut && strings.HasPrefix(f.Statement, "SELECT count(*)"):
					cut = true
					return wireproxy.Action{Kind: wireproxy.CutBefore}
				}
				return wireproxy.Action{}
			}})
			s := d.open(t, through, deduptest.Options{})
			err := s.InTx(t.Context(), []dedup.Record{record("k")}, func(tx *sql.Tx, _ []dedup.Claim) error {
				_, err := tx.Exec(effect)
				return err
			})
			if !deadlock || !cut {
				t.Fatalf("deadlock %v, cut %v: nothing was tried", deadlock, cut)
			}
			if err == nil || errors.Is(err, dedup.ErrTxEnded) {
				t.Errorf("InTx = %v, want the deadlock", err)
			}
			if _, claimed, err := s.Lookup(t.Context(), record("k").Key); err != nil || claimed {
				t.Errorf("Lookup says %v, %v", claimed, err)
			}
		})
	}
}
