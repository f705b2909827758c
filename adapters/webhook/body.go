package webhook

import (
	"context"
	"io"
)

const firstBuffer = 4 << 10

// readAll reads body, which declares size bytes, or -1. It takes the bytes of its buffers from held before it allocates
// them, and waits for them until ctx ends. The buffer grows only as far as the sender has sent: a quarter of it is
// there.
func readAll(ctx context.Context, body io.Reader, size, most int64, held *share) ([]byte, error) {
	capacity := int64(firstBuffer)
	if size >= 0 {
		capacity = min(size, firstBuffer)
	}
	if err := held.take(ctx, capacity); err != nil {
		return nil, err
	}
	buf := make([]byte, 0, capacity)
	var beyond [1]byte
	for {
		into := buf[len(buf):cap(buf)]
		if len(into) == 0 {
			into = beyond[:] // often there is no more
		}
		n, err := body.Read(into)
		if n > 0 && len(buf) == cap(buf) {
			larger := min(2*int64(cap(buf)), most)
			if size > int64(len(buf)) {
				larger = min(4*int64(cap(buf)), size)
			}
			larger = max(larger, int64(len(buf))+1)
			if err := held.take(ctx, larger); err != nil {
				return nil, err
			}
			grown := make([]byte, len(buf), larger)
			copy(grown, buf)
			held.give(int64(cap(buf)))
			buf = append(grown, beyond[0])
		} else {
			buf = buf[:len(buf)+n]
		}
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
