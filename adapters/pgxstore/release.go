package pgxstore

import "github.com/txonce/txonce/internal/release"

// If this does not compile, the modules of txonce are of different releases: go get all of them at one version.
const _ = release.V0_1
