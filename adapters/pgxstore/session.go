package pgxstore

import (
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
)

// sessionState is what the Store compares of a session: it decides which tables a handler's statements mean, and
// whether a crash may undo COMMIT.
type sessionState struct {
	server string // see claims.History; compare ignores it
	sync   string // synchronous_commit
	// the schema of temporary tables; after sessions.look: their number and a hash of their names. 0: none, in both
	temps string
	names string // current_user and search_path
}

// noTemporaries are the temps of a session without temporary tables.
const noTemporaries = "0"

// stateOf reads the text that dialect.Postgres calls the session's state.
func stateOf(text string) (st sessionState) {
	st.server, text, _ = strings.Cut(text, " ")
	st.sync, text, _ = strings.Cut(text, " ")
	st.temps, st.names, _ = strings.Cut(text, " ")
	return st
}

func (st sessionState) String() string { return st.sync + " " + st.temps + " " + st.names }

// text is the inverse of stateOf.
func (st sessionState) text() string { return st.server + " " + st.String() }

// ofHook returns what counts where a hook prepares each use of a connection: the hook may use another tenant's role,
// search_path and names of temporary tables.
func (st sessionState) ofHook() sessionState {
	n, _, _ := strings.Cut(st.temps, "-")
	return sessionState{sync: st.sync, temps: n}
}

// seen is what the Store knows about the session of a connection. The connection has it in its CustomData.
type seen struct {
	met  sessionState // what the latest claim found; only if a claim finds another state, the Store asks the server
	want sessionState // what the session must be, see compare
}

const seenKey = "github.com/txonce/txonce/adapters/pgxstore"

// hooks says which hooks of the pool may change sessions.
type hooks struct {
	connect bool // AfterConnect runs once per connection
	acquire bool // PrepareConn or BeforeAcquire runs each time that a connection is acquired
}

func hooksOf(pool *pgxpool.Config) hooks {
	return hooks{pool.AfterConnect != nil, pool.PrepareConn != nil || pool.BeforeAcquire != nil} //nolint:staticcheck // deprecated, but it still runs
}
