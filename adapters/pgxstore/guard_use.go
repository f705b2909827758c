package pgxstore

import (
	"cmp"
	"errors"
	"time"
)

// A handler may start goroutines that use its transaction, and return before they have ended. A statement that such a goroutine has begun
// must not run after the transaction: it would be committed without a claim, or together with the claim of another message. And pgx
// panics when two goroutines use a connection. So the guard counts the calls that use the transaction.

// errInUse is not ErrTxEnded, because the transaction of the claim is still open.
var errInUse = errors.New("pgxstore: rolled back: the handler returned while one of its goroutines used the transaction: wait for the goroutines before it returns")

// useEnds is how long over waits for the calls whose connection it has closed. They may be in code of the user, such as driver.Valuer.
const useEnds = time.Second

// enter is called at the begin of each call that uses the transaction. If it returns no error, call exit at the end.
func (g *guard) enter() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return cmp.Or(g.ended, errReturned)
	}
	g.using++
	return nil
}

func (g *guard) exit() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.using--; g.using == 0 && g.over {
		close(g.unused)
	}
}

func (g *guard) inUse() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.using > 0
}

// returned is called when the handler has returned. From then on enter refuses all calls. If calls are still in progress, returned closes the
// connection and reports true. PostgreSQL then rolls the transaction back.
func (g *guard) returned() bool {
	g.mu.Lock()
	before, inUse := g.over, g.using > 0
	if !before {
		g.over, g.unused = true, make(chan struct{})
	}
	g.mu.Unlock()
	if before || !inUse {
		return false
	}
	_ = g.conn.PgConn().Conn().Close() // the methods of pgx are not for two goroutines
	select {
	case <-g.unused:
	case <-time.After(useEnds):
	}
	return true
}
