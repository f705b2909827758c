package driver

import (
	"context"

	"github.com/txonce/txonce/dedup"
)

// ResultStore keeps the answer to a request together with its claim.
//
// Without it httpidem and the checkpoints of webhooks refuse the Store.
type ResultStore[TTx any] interface {
	// SaveResult stores result in the row of key, which tx has claimed. Later duplicates find it in dedup.Claim.Result.
	// A Store may write result together with COMMIT; then InTx, and not SaveResult, returns the database's errors about
	// it.
	SaveResult(ctx context.Context, tx TTx, key dedup.Key, result []byte) error
}

// KeyReader reads a claim, for people who look for a cause. It proves nothing about a COMMIT in progress: claim again
// to know.
//
// Without it ops.Store explains no key.
type KeyReader interface {
	// Lookup returns the claim of key, with the verdict dedup.Duplicate. found is false, without an error, if there is
	// none.
	Lookup(ctx context.Context, key dedup.Key) (c dedup.Claim, found bool, err error)
}
