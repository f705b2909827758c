// Package parallel is for the TestMain of packages whose tests wait for servers more than they compute.
package parallel

import (
	"flag"
	"strconv"
)

// Tests lets n tests of this binary run side by side, however many processors there are, unless the flag -parallel is
// given.
func Tests(n int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(n)) // fails for no number
	}
}
