package consumertest

import (
	"context"
	"errors"
	"sync"
	"testing"

	consumerdriver "github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
)

// inTx runs a transaction. beforeCommit, unless it is nil, is called after the handler has succeeded.
type inTx func(beforeCommit func() error) error

// passing is a Store whose transactions are run by a test. It is not a driver.Registrar, so that several consumers with
// one name may use the Store behind it.
type passing[TTx any] struct {
	dedup.Store[TTx]
	pass func(ctx context.Context, tx inTx) error // nil: transactions run as usual
	// called after a handler has succeeded, before beforeCommit; nil: nothing
	handled func(ctx context.Context, tx TTx) error

	mu     sync.Mutex
	failed error // the error of a handler
}

// store returns p as a Store that keeps dead letters, and interleaves handlers, if the Store behind it does.
func (p *passing[TTx]) store() dedup.Store[TTx] {
	lot, parks := p.Store.(consumerdriver.ParkingLot[TTx])
	interleaver, interleaves := p.Store.(driver.Interleaver[TTx])
	switch {
	case parks && interleaves:
		return struct {
			*passing[TTx]
			consumerdriver.ParkingLot[TTx]
			driver.Interleaver[TTx]
		}{p, lot, interleaver}
	case parks:
		return struct {
			*passing[TTx]
			consumerdriver.ParkingLot[TTx]
		}{p, lot}
	default:
		return p
	}
}

func (p *passing[TTx]) InTx(ctx context.Context, recs []dedup.Record,
	fn func(tx TTx, claims []dedup.Claim) error,
) error {
	tx := func(beforeCommit func() error) error {
		return p.Store.InTx(ctx, recs, func(tx TTx, claims []dedup.Claim) error {
			if err := fn(tx, claims); err != nil {
				if !p.Store.Retryable(err) {
					p.mu.Lock()
					p.failed = err
					p.mu.Unlock()
				}
				return err
			}
			if p.handled != nil {
				if err := p.handled(ctx, tx); err != nil {
					return err
				}
			}
			if beforeCommit == nil {
				return nil
			}
			return beforeCommit()
		})
	}
	if p.pass == nil {
		return tx(nil)
	}
	return p.pass(ctx, tx)
}

// VerifyTx implements driver.TxVerifier, if the Store behind p does.
func (p *passing[TTx]) VerifyTx(ctx context.Context, tx TTx) error {
	if verifier, ok := p.Store.(driver.TxVerifier[TTx]); ok {
		return verifier.VerifyTx(ctx, tx)
	}
	return nil
}

func (p *passing[TTx]) Retryable(err error) bool {
	return errors.Is(err, errCrash) || p.Store.Retryable(err)
}

// check fails the test if a handler has failed by itself, because that would explain every other failure.
func (p *passing[TTx]) check(t testing.TB) {
	t.Helper()
	if err := p.failure(); err != nil {
		t.Fatalf("the message did not succeed: %v", err)
	}
}

// failure returns the error of a handler.
func (p *passing[TTx]) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}
