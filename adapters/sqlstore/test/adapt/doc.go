// Package adapt shows how handlers get transactions of bun and sqlc through sqlstore.Adapt, and tests this and the
// package gormstore on real databases. Copy the two functions that you need from its examples. It is a module of its
// own so that these libraries stay out of txonce's go.mod.
package adapt
