package pgxstore_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/testdb"
)

// slowValue is an argument that takes time, such as one that another service encrypts.
type slowValue struct{ asked, given chan struct{} }

func (v slowValue) Value() (driver.Value, error) {
	select {
	case v.asked <- struct{}{}:
	default:
	}
	<-v.given
	return "late", nil
}

// A handler returns while one of its goroutines has begun a statement that is not sent yet. The statement must run in
// no other transaction, and nothing is committed.
func TestHandlerLeavesACallInProgress(t *testing.T) {
	errMine := errors.New("mine")
	for name, tt := range map[string]struct {
		returns func() error
		want    string
	}{
		"and returns nil":      {returns: func() error { return nil }, want: "one of its goroutines"},
		"and returns an error": {returns: func() error { return errMine }, want: "mine"},
		"and panics":           {returns: func() error { panic("mine") }, want: "mine"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
			v := slowValue{make(chan struct{}, 1), make(chan struct{})}
			late := make(chan error, 1)
			err := caught(func() error {
				return h.store.InTx(t.Context(), ordinaryRecord("k"), func(tx pgx.Tx, _ []dedup.Claim) error {
					if err := effect(t.Context(), tx, "of the handler"); err != nil {
						return err
					}
					go func() { late <- second(tx.Exec(t.Context(), insertEffect, v)) }()
					<-v.asked
					time.AfterFunc(200*time.Millisecond, func() { close(v.given) })
					return tt.returns()
				})
			})
			if err == nil || !strings.Contains(err.Error(), tt.want) || h.store.Retryable(err) {
				t.Errorf("InTx = %v, want %q", err, tt.want)
			}
			if err := <-late; err == nil {
				t.Error("the statement was executed")
			}
			if diff := cmp.Diff([]string{}, h.effects()); diff != "" {
				t.Errorf("committed (-want +got):\n%s", diff)
			}
			if err := h.handle("k", func(context.Context, pgx.Tx) error { return nil }); err != nil {
				t.Errorf("claimed again: %v", err)
			}
		})
	}
}

// In a batch the handler is named that has left the call.
func TestVerifyTxFindsACallInProgress(t *testing.T) {
	t.Parallel()
	h := newHandlerTest(t, testdb.Postgres(t), pgxstore.Config{})
	v := slowValue{make(chan struct{}, 1), make(chan struct{})}
	late := make(chan error, 1)
	var verified error
	err := h.handle("k", func(ctx context.Context, tx pgx.Tx) error {
		go func() { late <- second(tx.Exec(ctx, insertEffect, v)) }()
		<-v.asked
		time.AfterFunc(200*time.Millisecond, func() { close(v.given) })
		verified = h.store.VerifyTx(ctx, tx)
		return nil
	})
	if verified == nil || err == nil || !strings.Contains(verified.Error(), "one of its goroutines") {
		t.Errorf("VerifyTx = %v, then InTx = %v", verified, err)
	}
	if err := <-late; err == nil || len(h.effects()) > 0 {
		t.Errorf("committed: %v", h.effects())
	}
}

// caught calls f and returns what it panics with as an error.
func caught(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = errors.New(v.(string)) //nolint:forcetypeassert // the test's own panic
		}
	}()
	return f()
}
