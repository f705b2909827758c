package watermilltx

import (
	"context"
	"fmt"
)

type txKey struct{}

// Tx returns the transaction of the handler whose message has the context ctx. The handler's writes in it are committed
// together with the message's claim and with the messages that the handler produces. watermill's handlers have no
// parameter for it.
//
//	tx := watermilltx.Tx[*sql.Tx](msg.Context())
//
// It panics if there is no transaction, or one of another type: otherwise the handler would write outside of the
// transaction. The panic is an error of the attempt, which is rolled back.
func Tx[TTx any](ctx context.Context) TTx {
	found := ctx.Value(txKey{})
	tx, ok := found.(TTx)
	if !ok {
		panic(fmt.Sprintf("watermilltx: Tx[%T]: the context has %T; is the handler behind a watermilltx.Middleware, and ctx its message's?", tx, found))
	}
	return tx
}
