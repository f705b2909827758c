package observe

import "time"

// Pause is a time when a consumer, a relay or a subscriber makes no progress. It is the argument of the hooks Paused
// and Resumed. For each Name, Topic and Cause the two hooks are called alternately, Paused first.
type Pause struct {
	Name  string    // of the consumer or relay; of a subscriber, its queue or topic
	Topic string    // in a relay, the topic that is at fault; empty: all topics
	Cause Cause     // CauseDatabase, CauseBudget or CauseBroker
	Err   error     // the error that began the pause; in Resumed, the latest one
	Since time.Time // when the first error occurred
}
