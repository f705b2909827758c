package consumer

import (
	"context"

	"github.com/txonce/txonce/dedup"
)

// A pass with one transaction per message knows which message comes next. If the store is a dedup.Sequencer, the claim of that message
// travels with the COMMIT of the one before. That claim holds a key, so it must not outlive the step to the next message: nothing else may
// use the database in between.

// sequenced begins the sequence of the pass, if there is one. end closes it.
func (b *batch[TTx]) sequenced() (end func()) {
	sequencer, ok := b.c.cfg.Store.(dedup.Sequencer[TTx])
	if !ok || b.c.cfg.MaxBatch != 1 || len(b.items) == 1 {
		return func() {}
	}
	b.sequence = sequencer.Sequence()
	return b.sequence.Close
}

// inTx is Store.InTx.
func (b *batch[TTx]) inTx(ctx context.Context, recs []dedup.Record, fn func(TTx, []dedup.Claim) error) error {
	if b.sequence == nil {
		return b.c.cfg.Store.InTx(ctx, recs, fn)
	}
	return b.sequence.InTx(ctx, recs, b.claimedAhead(), fn)
}

// claimedAhead returns what the next transaction claims; nil if that is not known or if there may be none.
func (b *batch[TTx]) claimedAhead() []dedup.Record {
	if len(b.following) == 0 {
		return nil
	}
	i := b.following[0]
	it := &b.items[i]
	if before, found := b.blocked[it.msg.Key]; found && before.by < i {
		return nil
	}
	if it.done || it.refused != nil || b.errs[i] != nil || len(it.aliases) > 0 || b.c.inDoubt(it) {
		return nil
	}
	return []dedup.Record{b.record(it)}
}

// dropAhead gives up a claim that was made ahead.
func (b *batch[TTx]) dropAhead() {
	if b.sequence != nil {
		b.sequence.Close()
	}
}

// record is the record that claims an item's own key.
func (b *batch[TTx]) record(it *item) dedup.Record {
	rec := b.c.claimRecord(it.rec)
	rec.Redelivered = it.msg.Attempt > 1 && !b.c.history.knows(it.hash) // if it has failed here, it is probably new
	return rec
}
