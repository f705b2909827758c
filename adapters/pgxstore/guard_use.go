package pgxstore

import (
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txonce/txonce/adapters/pgxstore/internal/pgxrows"
)

// A handler may start goroutines that use its transaction, and return before they have ended. A statement that such a
// goroutine has begun must not run after the transaction: it would be committed without a claim, or together with the
// claim of another message. And pgx panics when two goroutines use a connection. So the guard counts the calls that use
// the transaction.

// errInUse is not ErrTxEnded, because the transaction of the claim is still open.
var errInUse = errors.New("pgxstore: rolled back: the handler returned while one of its goroutines used the transaction: " +
	"wait for the goroutines before it returns")

// useEnds is how long end waits for the calls whose connection it has closed. They may be in code of the user, such as
// driver.Valuer.
const useEnds = time.Second

// usage counts the calls of the handler that use the transaction. The zero value is ready for use.
type usage struct {
	mu     sync.Mutex
	calls  int
	over   bool          // the handler has returned
	unused chan struct{} // closed when calls gets 0 after that
}

// enter is called at the begin of each call that uses the transaction. If it returns no error, call exit at the end.
func (u *usage) enter() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.over {
		return pgxrows.ErrReturned
	}
	u.calls++
	return nil
}

func (u *usage) exit() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.calls--; u.calls == 0 && u.over {
		close(u.unused)
	}
}

func (u *usage) inProgress() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.calls > 0
}

// end is called when the handler has returned. From then on enter refuses all calls. If calls are still in progress,
// end closes the connection and reports true. PostgreSQL then rolls the transaction back.
func (u *usage) end(conn *pgx.Conn) (cut bool) {
	u.mu.Lock()
	before, inUse := u.over, u.calls > 0
	if !before {
		u.over, u.unused = true, make(chan struct{})
	}
	u.mu.Unlock()
	if before || !inUse {
		return false
	}
	_ = conn.PgConn().Conn().Close() // the methods of pgx are not for two goroutines
	select {
	case <-u.unused:
	case <-time.After(useEnds):
	}
	return true
}
