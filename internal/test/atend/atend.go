// Package atend keeps the functions that a test process calls after its last test.
package atend

var all []func()

// Do makes Run call f. Call it in an init function, where a helper keeps something for all tests.
func Do(f func()) { all = append(all, f) }

// Run is called once, after the last test.
func Run() {
	for _, f := range all {
		f()
	}
}
