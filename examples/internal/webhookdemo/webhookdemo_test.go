package webhookdemo_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/txonce/txonce/examples/internal/webhookdemo"
)

// An answer that is not the expected one is a wrong result.
func TestSendNoticesAnswers(t *testing.T) {
	broken := httptest.NewServer(http.NotFoundHandler())
	defer broken.Close()
	s := webhookdemo.New(io.Discard)
	s.Send(t.Context(), broken.URL, "an event", nil, nil, 200)
	s.Storm(t.Context(), broken.URL, "an event, sent", nil, func() http.Header { return nil })
	if len(s.Wrong) != 2 || s.Err() == nil {
		t.Errorf("wrong: %v, want two results", s.Wrong)
	}
}
