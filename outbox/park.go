package outbox

// ParkPolicy says what happens to the later messages of a key after one of its messages is parked: present ones and
// future ones.
type ParkPolicy int

// The zero value keeps the order of the key, and releases the later messages without further calls.
const (
	BlockKey    ParkPolicy = iota // they wait until it is unparked or discarded
	ParkKey                       // they are parked as well, and each must be unparked or discarded
	SkipMessage                   // they are published: the parked message loses its place in the order of the key
)
