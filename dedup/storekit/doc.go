// Package storekit holds what authors of a dedup.Store need beside the interface: the horizon, which says whether a message
// without a claim is new, and the encoding of headers for a JSON column. Users of txonce need none of it.
//
// A store records a WindowUse before its first claim under a window, and the horizon's input with each sweep. A claim that
// finds no row asks Provable whether the message is new. dedup/deduptest has the suite that a store must pass.
package storekit
