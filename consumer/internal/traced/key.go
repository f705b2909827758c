// Package traced has the key of the hooks that driver.WithTrace adds to a ctx, for package consumer, which cannot
// import driver.
package traced

// Key is the key of a *consumer.Trace in a ctx.
type Key struct{}
