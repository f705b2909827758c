package dialect_test

import (
	"strings"
	"testing"

	"github.com/txonce/txonce/internal/dialect"
)

// A question mark in the name of a schema is no parameter.
func TestOperatorSchemaWithQuestionMark(t *testing.T) {
	if got := dialect.NewPostgresOperator("a?b").EndAction; !strings.Contains(got, `"a?b".operator_actions`) || strings.Contains(got, "$3") {
		t.Error(got)
	}
}
