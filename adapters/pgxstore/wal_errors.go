package pgxstore

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5/pgconn"
)

// ErrSlotLost says that the outbox's replication slot cannot be relied on. Enqueue refuses, since what it emitted would be lost, and no
// relay publishes from it. Every error of that kind is a *SlotError.
var ErrSlotLost = errors.New("pgxstore: outbox: the replication slot cannot be used")

// SlotError says what is the matter with a slot. Enqueue knows the reason alone; Open, Renew and RepairOutboxSlot say also
// what may have been lost.
type SlotError struct {
	Slot   string // empty: none was created
	Reason string // a word for programs: none, missing, lost, unreserved, foreign, promoted, copied, unfinished

	// Messages of transactions that committed in the write-ahead log between From and To may be lost, those from above number
	// "none" up to LastSeq: From is what the broker had confirmed. Empty: nothing, or it is not known.
	From, To string
	LastSeq  int64
}

var slotReasons = map[string]string{
	"none":       "no slot was created: call Store.CreateOutboxSlot before the first Enqueue",
	"missing":    "it does not exist in this database: it was dropped, or the database restored; find out why, then call Store.RepairOutboxSlot",
	"lost":       "it fell so far behind that the server removed write-ahead log it needs (max_slot_wal_keep_size, idle_replication_slot_timeout); call Store.RepairOutboxSlot",
	"unreserved": "it is so far behind that the server is about to remove write-ahead log it needs: let a relay catch up, or raise max_slot_wal_keep_size",
	"foreign":    "it is further than what was published: somebody else advanced it, read from it, or dropped and created it again; call Store.RepairOutboxSlot",
	"promoted":   "the server was promoted or restored since it was created (another timeline); call Store.RepairOutboxSlot",
	"copied":     "it belongs to another database or schema, of which this one is a copy; call Store.RepairOutboxSlot, which creates one for this one",
	"unfinished": "it is still being created, which waits for the end of all transactions that were open",
}

func (e *SlotError) Error() string {
	text := fmt.Sprintf("%v: %s", ErrSlotLost, slotReasons[e.Reason])
	if e.Slot != "" {
		text = fmt.Sprintf("%v: slot %q: %s", ErrSlotLost, e.Slot, slotReasons[e.Reason])
	}
	if e.From != "" {
		text += fmt.Sprintf(" (what was committed between %s and %s and has a number up to %d may be lost)", e.From, e.To, e.LastSeq)
	}
	return text
}

// Is makes errors.Is(err, ErrSlotLost) true.
func (e *SlotError) Is(target error) bool { return target == ErrSlotLost }

// refusal is how dialect.PostgresWAL raises an error.
var refusal = regexp.MustCompile(`"txonce slot (\w+): (.*)"`)

// slotError makes a readable error of the server's where an Enqueue was refused for the slot. It is the database's fault.
func slotError(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != "22P02" {
		return err
	}
	found := refusal.FindStringSubmatch(pg.Message)
	if found == nil {
		return err
	}
	return databaseError{&SlotError{Reason: found[1], Slot: found[2]}}
}
