package outbox

import (
	"bytes"
	"fmt"
	"runtime"
	"strconv"
)

// goroutineID reads it from the first line of the stack, "goroutine 18 [running]:", as net/http does. It is used only to
// refuse, and takes some microseconds, because the runtime walks the whole stack; so currentG is asked first.
func goroutineID() uint64 {
	var buf [64]byte
	line := bytes.TrimPrefix(buf[:runtime.Stack(buf[:], false)], []byte("goroutine "))
	digits, _, _ := bytes.Cut(line, []byte(" "))
	id, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil {
		panic(fmt.Sprintf("outbox: no goroutine id in %q", buf[:]))
	}
	return id
}
