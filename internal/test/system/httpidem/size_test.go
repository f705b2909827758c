package httpidem_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestLargeResponse: a response of nearly Config.MaxResponse is replayed byte by byte on each database, with odd header
// values.
func TestLargeResponse(t *testing.T) {
	eachEngine(t, func(t *testing.T, e engine) {
		for _, size := range []int{0, 1, 65_530, 65_536, 1<<20 - 300} {
			n := e.node(t, e.Create(t), settings{})
			body := make([]byte, size)
			for i := range body {
				body[i] = byte(rand.IntN(256))
			}
			h := n.handle(func(_ context.Context, exec func(string, ...any) error, w http.ResponseWriter, _ *http.Request) error {
				if err := exec(e.Insert, "a", "b"); err != nil {
					return err
				}
				w.Header()["Location"] = []string{"/é\xff", "second"}
				w.Header()["Content-Type"] = nil
				w.WriteHeader(http.StatusCreated)
				_, err := w.Write(body)
				return err
			})
			q := request{}
			one, two := httptest.NewRecorder(), httptest.NewRecorder()
			h.ServeHTTP(one, q.make(t.Context()))
			h.ServeHTTP(two, q.make(t.Context()))
			if one.Code != 201 || two.Code != 201 || !isReplay(two) || !bytes.Equal(one.Body.Bytes(),
				two.Body.Bytes()) || !bytes.Equal(one.Body.Bytes(), body) {
				t.Errorf("size %d: %d %d replay %v, equal %v", size, one.Code, two.Code, isReplay(two),
					bytes.Equal(one.Body.Bytes(), two.Body.Bytes()))
			}
			if len(two.Header()["Location"]) != 2 || two.Header()["Location"][0] != "/é\xff" {
				t.Errorf("Location %q", two.Header()["Location"])
			}
		}
	})
}
