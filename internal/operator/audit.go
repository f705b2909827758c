package operator

import (
	"encoding/hex"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/columns"
	"github.com/txonce/txonce/internal/dialect"
)

// Handled returns the statement and the parameters that record that a transaction has handled a key.
func Handled(st *dialect.Operator, key dedup.Key, position string, keep time.Duration) (query string, args []any) {
	hash := key.Hash()
	return st.AddAudit, []any{hex.EncodeToString(hash[:]), key.Consumer, columns.Text(position), keep.Microseconds()}
}
