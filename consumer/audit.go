package consumer

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/txonce/txonce/dedup"
)

// audited is how many windows a row of the ledger is kept. The claim is kept for one: so a redelivery that comes when its claim is forgotten
// finds the row of the first delivery still there.
const audited = 2

// audit records those of keys that Config.AuditEvery selects, as part of tx, which has claimed them for msgs.
func (c *Consumer[TTx]) audit(ctx context.Context, tx TTx, msgs []*Message, keys []dedup.Key) error {
	if c.ledger == nil {
		return nil
	}
	for i, key := range keys {
		if !auditedKey(key, c.cfg.AuditEvery) {
			continue
		}
		if err := c.ledger.RecordHandled(ctx, tx, key, msgs[i].Position, audited*c.cfg.Window); err != nil {
			return err
		}
	}
	return nil
}

// auditedKey selects one of every so many keys. It depends on the key alone, so that every attempt and every process decide alike.
func auditedKey(key dedup.Key, every int) bool {
	hash := key.Hash()
	return binary.BigEndian.Uint64(hash[8:])%uint64(every) == 0 // the first bytes may be a time
}

// tryAudit writes a row to the ledger and rolls back. Without it, a user that may not write there would first be noticed when a message is
// parked for it.
func (c *Consumer[TTx]) tryAudit(ctx context.Context) error {
	if c.ledger == nil {
		return nil
	}
	undo := errors.New("consumer: roll back")
	err := c.cfg.Store.InTx(ctx, nil, func(tx TTx, _ []dedup.Claim) error {
		if err := c.ledger.RecordHandled(ctx, tx, dedup.Key{Consumer: c.cfg.Name, ID: "start"}, "", c.cfg.Window); err != nil {
			return err
		}
		return undo
	})
	if errors.Is(err, undo) {
		return nil
	}
	return err
}
