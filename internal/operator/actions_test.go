package operator_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/operator"
)

// broken is a database that commits and then fails.
type broken struct{ statements dialect.Operator }

var errAway = errors.New("connection reset")

func (b *broken) Statements(context.Context) (*dialect.Operator, error) { return &b.statements, nil }

func (b *broken) Read(context.Context, string, func(context.Context, operator.Queryer) error) error {
	return errAway
}

func (b *broken) Write(context.Context, string, func(context.Context, operator.Queryer) error) error {
	return nil
}

// An operator who gets an error must know whether the action was requested: a second request would choose other
// letters.
func TestRequestThatCannotBeReadBack(t *testing.T) {
	s := operator.Service{DB: &broken{dialect.NewSQLiteOperator()}}
	a, err := s.Request(t.Context(), ops.Request{Kind: ops.Unpark, Who: "ann", Reason: "test", Expect: -1})
	if !errors.Is(err, errAway) || a.ID == (ops.ActionID{}) || !strings.Contains(err.Error(), a.ID.String()) {
		t.Errorf("%+v, %v", a, err)
	}
}
