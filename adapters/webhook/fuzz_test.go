package webhook_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/outbox"
)

// Any program may write to the topic of an Inbox. A Worker must not panic, and takes an event only from whole headers.
func FuzzWorker(f *testing.F) {
	f.Add("1", "shop", "2026-07-01T12:00:00Z", "0011223344556677", []byte("{}"))
	f.Add("", "", "", "zz", []byte(nil))
	f.Fuzz(func(t *testing.T, id, tenant, created, fingerprint string, payload []byte) {
		var got *consumer.Message
		w := newWorker(t, webhook.WorkerConfig{Processor: answers(func(_ context.Context, msgs []*consumer.Message) []error {
			got = msgs[0]
			return []error{nil}
		})})
		errs := w.Publish(t.Context(), []outbox.Message{{ID: "x", Topic: "t", Payload: payload, Headers: map[string]string{
			webhook.HeaderID: id, webhook.HeaderTenant: tenant, webhook.HeaderTime: created,
			webhook.HeaderFingerprint: fingerprint,
		}}})
		if errs[0] != nil || got.ID != id || got.Tenant != tenant || !bytes.Equal(got.Payload, payload) {
			t.Fatalf("%v, %+v", errs[0], got)
		}
		if whole := id != "" && !got.Time.IsZero() && got.Fingerprint != nil; got.Malformed == nil && !whole &&
			created != "0001-01-01T00:00:00Z" {
			t.Errorf("not malformed: %+v", got)
		}
		if f, err := webhook.ForwardedFingerprint(got); (err == nil) != (got.Fingerprint != nil) ||
			err == nil && f != *got.Fingerprint {
			t.Errorf("ForwardedFingerprint: %v, %v", f, err)
		}
	})
}

// No request makes the Receiver panic, and each gets one of the documented responses.
func FuzzReceiver(f *testing.F) {
	f.Add("POST", "gzip", "00", []byte("[]"), int64(2))
	f.Add("POST", "", "", []byte(`[{"id":"1"}]`), int64(-1))
	s := newShop()
	f.Fuzz(func(t *testing.T, method, encoding, signature string, body []byte, length int64) {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
		req.Method, req.Body, req.ContentLength = method, io.NopCloser(bytes.NewReader(body)), length
		req.Header["Content-Encoding"], req.Header["Shop-Signature"] = []string{encoding}, []string{signature}
		if signature == "right" {
			req.Header.Set("Shop-Signature", s.sign(body))
		}
		r := newReceiver(t, webhook.Config{Verifier: s, Processor: always(nil)})
		res := do(r, req)
		if !slices.Contains([]int{200, 400, 405, 413, 415, 500}, res.StatusCode) {
			t.Errorf("status %d", res.StatusCode)
		}
		if res.StatusCode == 200 && (method != "POST" || signature != "right" && signature != s.sign(body)) {
			t.Error("accepted")
		}
	})
}
