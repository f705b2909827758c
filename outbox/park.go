package outbox

import "errors"

// Errors of the stores.
var (
	// ErrSchema says that the outbox's tables are missing, or have a version that this program does not support. Queues wrap it.
	ErrSchema = errors.New("outbox: the database's schema does not fit")

	// ErrSettings says that a setting of the database, the role or the DSN breaks the relay's statements. The error names it. Queues wrap it.
	ErrSettings = errors.New("outbox: settings of the database, the role or the DSN")
)

// ParkPolicy says what happens to the later messages of a key after one of its messages is parked: present ones and future ones.
type ParkPolicy int

// The zero value keeps the order of the key, and releases the later messages without further calls.
const (
	BlockKey    ParkPolicy = iota // they wait until it is unparked or discarded
	ParkKey                       // they are parked as well, and each must be unparked or discarded
	SkipMessage                   // they are published: the parked message loses its place in the order of the key
)
