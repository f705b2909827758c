//go:build amd64 || arm64

package outbox

// currentG is a number that no other living goroutine has. A goroutine that begins later may have it again.
func currentG() uintptr
