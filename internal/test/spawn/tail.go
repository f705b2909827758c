package spawn

import (
	"bytes"
	"io"
	"strings"
	"sync"
)

// Tail keeps the last bytes that were written to it.
type Tail struct {
	Also io.Writer // gets everything; nil: nobody
	mu   sync.Mutex
	kept []byte
}

func (t *Tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	const most = 4 << 10
	t.kept = append(t.kept, b...)
	if over := len(t.kept) - most; over > 0 {
		t.kept = bytes.Clone(t.kept[over:])
	}
	if t.Also != nil {
		return t.Also.Write(b)
	}
	return len(b), nil
}

func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.kept))
}
