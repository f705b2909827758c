package httpidem

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

var (
	errTooLong = errors.New("the response is longer than Config.MaxResponse")
	errClosed  = errors.New("httpidem: the handler has returned: its response is complete")
)

// recorder is the http.ResponseWriter of a handler. It keeps the response until COMMIT. It has neither Flush nor Hijack
// nor Unwrap: with these a handler could reach the client before COMMIT.
type recorder struct {
	out  http.ResponseWriter // the client's; only for SetWriteDeadline
	most int

	mu     sync.Mutex
	header http.Header // what the handler changes
	sent   http.Header // a copy of it from the first WriteHeader; nil: not called yet
	status int
	body   []byte
	broken error // why there is no response
	closed bool
}

func newRecorder(out http.ResponseWriter, most int) *recorder {
	return &recorder{out: out, most: most, header: http.Header{}}
}

// Header implements http.ResponseWriter. It begins empty: a response must not depend on what outer layers have set.
func (r *recorder) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter. As in net/http, only the first call counts, and it panics unless status
// has three digits. Informational responses are dropped.
func (r *recorder) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if status == http.StatusSwitchingProtocols {
		r.broken = fmt.Errorf("101 Switching Protocols is not possible behind httpidem: %w", http.ErrNotSupported)
	}
	if status >= 200 {
		r.writeHeader(status)
	}
}

func (r *recorder) writeHeader(status int) {
	if r.sent == nil && !r.closed {
		r.status, r.sent = status, r.header.Clone()
		if r.sent == nil {
			r.sent = http.Header{}
		}
		for name, values := range r.header {
			// names that a handler has set without Header.Set must not pass the filters
			if canonical := http.CanonicalHeaderKey(name); canonical != name {
				delete(r.sent, name)
				r.sent[canonical] = append(r.sent[canonical], values...)
			}
		}
	}
}

// Write implements http.ResponseWriter.
func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, errClosed
	}
	r.writeHeader(http.StatusOK)
	switch {
	case !bodyAllowed(r.status):
		return 0, http.ErrBodyNotAllowed
	case len(p) > r.most-len(r.body):
		r.broken = errTooLong
		return 0, errTooLong
	}
	r.body = append(r.body, p...)
	return len(p), nil
}

// WriteString implements io.StringWriter.
func (r *recorder) WriteString(s string) (int, error) { return r.Write([]byte(s)) }

// SetReadDeadline is for http.ResponseController. It does nothing, because the whole body was read before the handler
// was called. The connection would keep the deadline, and break for the requests that follow: net/http lifts it only at
// the end of a body.
func (r *recorder) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is for http.ResponseController. It fails after the handler has returned: the connection's next
// request must not get the deadline.
func (r *recorder) SetWriteDeadline(t time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return errClosed
	}
	return http.NewResponseController(r.out).SetWriteDeadline(t)
}

// written reports whether the handler has chosen a status.
func (r *recorder) written() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sent != nil
}

// close drops what goroutines of the handler write from now on.
func (r *recorder) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// finish returns the response of a handler that has returned.
func (r *recorder) finish() (*response, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writeHeader(http.StatusOK)
	r.closed = true
	if r.broken != nil {
		return nil, r.broken
	}
	res := &response{status: r.status, header: r.sent, body: r.body}
	for name := range res.header {
		switch name {
		case "Content-Length", "Transfer-Encoding", "Trailer", // made again from the body
			replayedHeader: // the Guard's statement, which a handler may have copied from another service's response
			delete(res.header, name)
		}
		if strings.HasPrefix(name, http.TrailerPrefix) {
			delete(res.header, name)
		}
	}
	_, typed := res.header["Content-Type"]
	if !typed && len(res.body) > 0 && res.header.Get("Content-Encoding") == "" {
		// net/http would do the same, perhaps with another result in its next version
		res.header.Set("Content-Type", http.DetectContentType(res.body))
	}
	if res.header.Get("Cache-Control") == "" {
		res.header.Set("Cache-Control", "no-store")
	}
	if res.size() > r.most {
		return nil, errTooLong
	}
	return res, nil
}
