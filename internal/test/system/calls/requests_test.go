package calls_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// requests keeps what arrived at the other system, to explain a call that was charged twice.
type requests struct {
	of http.Handler

	mu  sync.Mutex
	all []string
}

func (q *requests) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	answer := &answered{ResponseWriter: w, status: http.StatusOK}
	arrived := time.Now()
	defer func() { // also when the provider cuts the connection
		q.mu.Lock()
		defer q.mu.Unlock()
		q.all = append(q.all, fmt.Sprintf("%s %s: arrived at %s, ended %v later with %d; the worker sent it at %s, its time ended at %s", r.Method,
			r.URL.Path+string(body), arrived.Format(clock), time.Since(arrived).Round(time.Millisecond), answer.status, r.Header.Get("Sent"), r.Header.Get("Ends")))
	}()
	q.of.ServeHTTP(answer, r)
}

const clock = "15:04:05.000"

type answered struct {
	http.ResponseWriter
	status int
}

func (a *answered) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

// twice returns the requests about what was charged more than once.
func (q *requests) twice(charges map[string]int) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	var found []string
	for reference, n := range charges {
		for _, line := range q.all {
			if n > 1 && (strings.Contains(line, `"`+reference+`"`) || strings.Contains(line, "/"+reference+":")) {
				found = append(found, line)
			}
		}
	}
	return strings.Join(found, "\n")
}
