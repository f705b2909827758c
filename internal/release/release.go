// Package release makes modules of different releases fail to compile together.
//
// The modules of txonce share packages below internal, whose API changes without notice: pgxstore scans columns by
// their position in a statement that package dialect writes. Go's module system may choose a root module that is newer
// than the adapter beside it. So each module names the constant of its release, and the root module declares only that
// of its own: the build says which release is missing, and go get of all modules at one version mends it.
// docs/releasing.md says when the constant changes.
package release

// V0_1 is declared by releases 0.1.x.
const V0_1 = true
