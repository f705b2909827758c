package httpidem_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/txonce/txonce/dedup/deduptest"
)

// A handler that refuses a request for its headers is satisfied by the same key, body and target with other headers.
func TestMendedHeaders(t *testing.T) {
	for _, tt := range []struct {
		status int
		header string
		wrong  []string // of the first request; nil: it is missing
		right  string
	}{
		{http.StatusPreconditionRequired, "If-Match", nil, `"v1"`},
		{http.StatusPreconditionFailed, "If-Match", []string{`"v0"`}, `"v1"`},
		{
			http.StatusPreconditionFailed, "If-Unmodified-Since",
			[]string{"Mon, 02 Jan 2006 15:04:05 GMT"},
			"Tue, 03 Jan 2006 15:04:05 GMT",
		},
		{http.StatusUnauthorized, "Authorization", nil, "Bearer x"},
		{http.StatusForbidden, "X-Csrf-Token", nil, "x"},
		{http.StatusNotAcceptable, "Accept", []string{"text/html"}, "application/json"},
		{http.StatusProxyAuthRequired, "Proxy-Authorization", nil, "Basic x"},
		{http.StatusLengthRequired, "X-Length", nil, "1"},
		{http.StatusUnsupportedMediaType, "Content-Type", []string{"text/plain"}, "application/json"},
		{http.StatusRequestedRangeNotSatisfiable, "Range", []string{"bytes=9-"}, "bytes=0-"},
		{http.StatusExpectationFailed, "X-Expect", []string{"x"}, ""},
		{http.StatusMisdirectedRequest, "X-Host", []string{"a"}, "b"},
		{http.StatusLocked, "Lock-Token", nil, "<urn:uuid:1>"},
		{http.StatusFailedDependency, "If", nil, "(<urn:uuid:1>)"},
		{http.StatusUpgradeRequired, "X-Tls", nil, "1.3"},
		{http.StatusTooManyRequests, "X-Quota", nil, "1"},
		{http.StatusRequestHeaderFieldsTooLarge, "X-Trace", []string{"long"}, ""},
		{http.StatusBadRequest, "Api-Version", nil, "2"},
		{http.StatusNotExtended, "X-Extension", nil, "1"},
		{http.StatusNetworkAuthenticationRequired, "X-Portal", nil, "1"},
		{http.StatusHTTPVersionNotSupported, "X-Version", nil, "2"},
	} {
		for _, wrap := range []bool{false, true} {
			a := newAPI(t)
			h := a.guard.Handle(func(_ context.Context, tx *deduptest.Tx, w http.ResponseWriter, r *http.Request) error {
				if err := tx.Add("effect"); err != nil { // also of the refusal: it is rolled back
					return err
				}
				if r.Header.Get(tt.header) != tt.right {
					w.WriteHeader(tt.status)
				}
				return nil
			})
			if wrap {
				h = a.guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					tx, err := a.guard.Tx(r.Context())
					if err != nil || tx.Add("effect") != nil {
						t.Error(err)
					}
					if r.Header.Get(tt.header) != tt.right {
						w.WriteHeader(tt.status)
					}
				}))
			}
			wrong := request{body: "{}", header: http.Header{tt.header: tt.wrong}}
			a.want(h, wrong, tt.status, false)
			a.want(h, wrong, tt.status, false) // it runs again
			a.wantEffects(0)
			right := request{body: "{}", header: http.Header{tt.header: {tt.right}}}
			a.want(h, right, http.StatusOK, false)
			a.want(h, right, http.StatusOK, true)
			if tt.header != "Content-Type" { // which says how the body is read, so it is part of the content
				a.want(h, wrong, http.StatusOK, true)
			}
			a.wantEffects(1)
		}
	}
}
