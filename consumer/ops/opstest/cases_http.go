package opstest

import (
	"errors"
	"strings"
	"testing"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/httpkey"
)

// What httpidem claims is a hash. The key that a client has sent is unknown, which says nothing about its request.
func testExplainHTTP[TTx any](t *testing.T, e *env[TTx]) {
	s := e.node(t)
	const guard = "payments-api"
	request := httpkey.Identity{Name: guard, Principal: "acme/7", Method: "POST", Target: "/payments", Key: "k-1"}
	key := dedup.Key{Consumer: guard, ID: request.Under([]byte("secret"))}
	other := key
	other.ID = request.Under([]byte("another secret"))
	if err := s.InTx(bounded(t), []dedup.Record{{Key: key}}, func(TTx, []dedup.Claim) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := s.Store.(driver.Registrar).RegisterSources(bounded(t), guard, []string{httpkey.Source}); err != nil {
		t.Fatal(err)
	}
	raw := dedup.Key{Consumer: guard, ID: request.Key}
	if got, err := ops.Explain(bounded(t), s.Operator(), raw, ops.ExplainOptions{}); !errors.Is(err, ops.ErrHTTPKey) {
		t.Errorf("the client's key: %s, %v; want ErrHTTPKey", got.Verdict, err)
	}
	for k, want := range map[dedup.Key]ops.Verdict{key: ops.Duplicate, other: ops.First} {
		got, err := ops.Explain(bounded(t), s.Operator(), k, ops.ExplainOptions{})
		if err != nil || got.Verdict != want || !got.HTTP {
			t.Errorf("a hash: %s, of HTTP: %t, %v; want %s", got.Verdict, got.HTTP, err, want)
		}
		out, err := ops.ExplainOutbox(bounded(t), s.Operator(), got)
		if err != nil || !strings.Contains(out.Describe(got), "unknown") {
			t.Errorf("its outbox: %q, %v", out.Describe(got), err)
		}
	}

	// A consumer of webhooks has tenants.
	const hooks = "payments"
	if err := s.Store.(driver.Registrar).RegisterSources(bounded(t), hooks, []string{"webhook stripe"}); err != nil {
		t.Fatal(err)
	}
	event := dedup.Key{Consumer: hooks, Tenant: "stripe/live", ID: "evt_1"}
	if err := s.InTx(bounded(t), []dedup.Record{{Key: event}}, func(TTx, []dedup.Claim) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[string]bool{"": true, "stripe/live": false} {
		event.Tenant = tenant
		got, err := ops.Explain(bounded(t), s.Operator(), event, ops.ExplainOptions{})
		if err != nil || got.NoTenant != want {
			t.Errorf("tenant %q: NoTenant %t, %v", tenant, got.NoTenant, err)
		}
	}
}
