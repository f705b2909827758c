package watermilltx

import (
	"context"
	"fmt"
)

type txKey struct{}

// Tx is the transaction of the handler whose message has the context ctx: what the handler writes through it is committed
// together with the message's claim and with what the handler produces. watermill's handlers have no parameter for it.
//
//	tx := watermilltx.Tx[*sql.Tx](msg.Context())
//
// It panics where there is none, or one of another type: a handler that went on would write outside of the transaction. The
// panic is an error of the attempt, and rolled back.
func Tx[TTx any](ctx context.Context) TTx {
	found := ctx.Value(txKey{})
	tx, ok := found.(TTx)
	if !ok {
		panic(fmt.Sprintf("watermilltx: Tx[%T]: the context has %T; is the handler behind a watermilltx.Middleware, and ctx its message's?", tx, found))
	}
	return tx
}
