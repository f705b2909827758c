package dedup

import (
	"context"
)

// ResultStore keeps the answer to a request together with its claim.
type ResultStore[TTx any] interface {
	// SaveResult stores result in the row of key, which tx has claimed. Later duplicates find it in Claim.Result. A Store may write
	// result together with COMMIT; then InTx, and not SaveResult, returns the database's errors about it.
	SaveResult(ctx context.Context, tx TTx, key Key, result []byte) error
}

// KeyReader reads a claim, for people who look for a cause. It proves nothing about a COMMIT in progress: claim again to know.
type KeyReader interface {
	// Lookup returns the claim of key, with the verdict Duplicate. found is false, without an error, if there is none.
	Lookup(ctx context.Context, key Key) (c Claim, found bool, err error)
}
