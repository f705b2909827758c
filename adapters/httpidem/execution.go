package httpidem

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/txonce/txonce/internal/httpkey"
	"github.com/txonce/txonce/internal/outgoing"
)

type executionKey struct{}

// execution is one run of a handler.
type execution struct {
	guard any // the *Guard that runs it
	id    *httpkey.Identity

	mu     sync.Mutex
	tx     any
	ended  bool
	worked bool // the handler asked for the transaction or a DownstreamKey
	labels map[string]bool
}

func executionOf(ctx context.Context) *execution {
	e, _ := ctx.Value(executionKey{}).(*execution)
	return e
}

// end makes the transaction unavailable to goroutines of a handler that has returned.
func (e *execution) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended, e.tx = true, nil
}

var errEnded = errors.New("httpidem: the handler has returned, and its transaction has ended")

// transaction returns the transaction while the handler runs.
func (e *execution) transaction() (any, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended {
		return nil, errEnded
	}
	e.worked = true
	return e.tx, nil
}

func (e *execution) used() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.worked
}

// ErrNoKey says that the request of ctx has no Idempotency-Key, which Config.Optional and the methods that are not
// guarded allow.
var ErrNoKey = errors.New("httpidem: the request has no Idempotency-Key")

// DownstreamKey returns an idempotency key for a call that the handler makes to another system, in the form of a UUID.
// The key is the same in each attempt of the request, also after a secret was replaced, and different for each label. A
// label can be used once in each attempt, because two calls with one key would be one call. It fails with ErrNoKey if
// the request has no key.
//
// The content does not count. A client that uses a key again after Config.Window, for another request, gets the same
// DownstreamKey. Config.KeyTime refuses old keys.
func DownstreamKey(ctx context.Context, label string) (string, error) {
	e := executionOf(ctx)
	switch {
	case e == nil:
		return "", errors.New("httpidem: DownstreamKey needs the context of a guarded handler")
	case e.id == nil:
		return "", ErrNoKey
	case label == "":
		return "", errors.New("httpidem: DownstreamKey needs a label, such as \"charge\"")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.ended:
		return "", errEnded
	case e.labels[label]:
		return "", fmt.Errorf("httpidem: DownstreamKey was called before with the label %q: give each call a label of its own", label)
	case e.labels == nil:
		e.labels = map[string]bool{}
	}
	e.labels[label], e.worked = true, true
	return outgoing.DownstreamKey(string(e.id.Derive("downstream", "")), label), nil
}
