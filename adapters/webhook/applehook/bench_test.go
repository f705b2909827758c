package applehook_test

import (
	"testing"

	"github.com/txonce/txonce/adapters/webhook"
)

// A notification with a transaction and a renewal: three signatures, and three chains of certificates.
func BenchmarkVerify(b *testing.B) {
	c := newChain(b)
	v := newVerifier(b, c)
	delivery := &webhook.Delivery{Body: body(b, c.sign(b, full(b, c))), Time: received}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.Verify(b.Context(), delivery); err != nil {
			b.Fatal(err)
		}
	}
}
