// Package lift shows how handlers get transactions of gorm, bun and sqlc, by sqlstore.Adapt, and tests it on real
// databases. It is a module of its own so that none of them comes into anybody's go.mod: copy the two functions that you
// need from its examples.
package lift
