package pgxstore

// DecodeWAL is for tests that look into a slot.
var DecodeWAL = decodeWAL
