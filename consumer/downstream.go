package consumer

import (
	"context"
	"errors"
	"fmt"

	"github.com/txonce/txonce/internal/outgoing"
)

// DownstreamKey returns an idempotency key for a call that a handler makes to another system, in the form of a UUID. The
// key is the same in each run of the handler for its message, and different for each label. A label can be used once in
// each run, because two calls with one key would be one call. ctx is the handler's. In HandleBatch, Scope makes it.
//
// The other system forgets the key after some time, and a message may be delivered again later: package calls makes
// calls that also know this.
func DownstreamKey(ctx context.Context, label string) (string, error) {
	scope := outgoing.ScopeOf(ctx)
	if scope == nil {
		return "", errors.New("consumer: DownstreamKey needs the context of a handler; in HandleBatch, that of Scope")
	}
	key, err := scope.DownstreamKey(label)
	if err != nil {
		return "", fmt.Errorf("consumer: DownstreamKey: %w", err)
	}
	return key, nil
}
