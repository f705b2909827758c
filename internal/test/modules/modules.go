// Package modules has only tests: of what a program downloads that imports a module of this repository, and of modules
// of different releases.
package modules
