package driver

// RequestedReplay says how an operator wants a dead letter to be replayed; see ReplayQueue of consumer/driver.
type RequestedReplay struct {
	Action [16]byte // the ops.ActionID of the request
	Key    string   // see consumer.Replay.Key
	AsNew  bool     // see consumer.Replay.AsNew

	// Payload replaces that of the letter's message.
	//
	// Defaults to nil: no change.
	Payload []byte

	Tries int // how often the letter was taken for this request, with this time
	Lost  int // how often it was taken before and not returned: the worker has ended, or works longer than its lease
}
