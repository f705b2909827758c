// Package driver is for authors of a dedup.Store: the optional interfaces of a Store, the classes of its errors, the
// waits that a ctx limits, the horizon, the check of a message's time, and the encoding of headers for a JSON column.
// Users of txonce need none of it, as users of database/sql do not need database/sql/driver.
//
// A Store may implement the optional interfaces, see optional.go and result.go: callers find them by type assertion, so
// that dedup.Store never has to grow. Each says what is lost without it. Package consumer/driver has two more, for dead
// letters.
//
// A Store records a WindowUse before its first claim under a window, and the horizon's input with each sweep. A claim
// that finds no row asks Provable whether the message is new. Package dedup/deduptest has the suite that a Store must
// pass.
package driver
