package observe

import "time"

// Relays is the Name of a Loss that a relay has noticed: the relays of an outbox share it.
const Relays = "outbox relays"

// Loss says that the database lost what it had committed, as after a failover to a standby that lacked the latest
// commits, or after a backup was restored. Messages and requests of that time were acknowledged, so they do not come
// again: somebody must send them again from their source. It is safe to send too many: what is not lost is a duplicate.
// It is the argument of the hooks WentBack.
type Loss struct {
	Name     string    // of the consumer or the Guard; Relays for those of an outbox
	From, To time.Time // what was committed between them is lost, by the clock of this process
	// how many messages this process acknowledged in that time: so many may be lost; 0: unknown
	Messages int64
	Err      error // says it in words
}
