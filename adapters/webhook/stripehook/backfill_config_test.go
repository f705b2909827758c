package stripehook_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/stripehook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
)

func TestNewClientRefuses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*stripehook.ClientConfig)
		want   string
	}{
		{"no key", func(c *stripehook.ClientConfig) { c.APIKey = "" }, "ClientConfig.APIKey is empty"},
		{
			"a key with a line break", func(c *stripehook.ClientConfig) { c.APIKey += "\n" },
			"ClientConfig.APIKey contains",
		},
		{
			"a publishable key", func(c *stripehook.ClientConfig) { c.APIKey = "pk_live_123" },
			"ClientConfig.APIKey is a publishable key",
		},
		{
			"a signing secret", func(c *stripehook.ClientConfig) { c.APIKey = liveSecret },
			"ClientConfig.APIKey is a publishable key or a signing secret",
		},
		{"no mode", func(c *stripehook.ClientConfig) { c.Mode = 0 }, "ClientConfig.Mode is Mode(0)"},
		{
			"a key of the other mode", func(c *stripehook.ClientConfig) { c.APIKey = testKey },
			"ClientConfig.APIKey is a test key, and ClientConfig.Mode is live",
		},
		{
			"an organization's key of the other mode", func(c *stripehook.ClientConfig) { c.APIKey = "sk_org_test_123" },
			"ClientConfig.APIKey is a test key",
		},
		{
			"an account with a line break", func(c *stripehook.ClientConfig) { c.Account = "acct_1\n" },
			"ClientConfig.Account is",
		},
		{
			"a version with a space", func(c *stripehook.ClientConfig) { c.Version = "2026 10" },
			"ClientConfig.Version is",
		},
		{
			"no URL", func(c *stripehook.ClientConfig) { c.BaseURL = "api.stripe.com" },
			"ClientConfig.BaseURL: want a URL",
		},
		{
			"a URL with a password", func(c *stripehook.ClientConfig) { c.BaseURL = "https://a:b@api.stripe.com" },
			"ClientConfig.BaseURL: want a URL",
		},
		{
			"a key in the clear", func(c *stripehook.ClientConfig) { c.BaseURL = "http://api.stripe.com" },
			"ClientConfig.BaseURL: want https",
		},
		{"a key in the clear, to a name like this machine's", func(c *stripehook.ClientConfig) { c.BaseURL = "http://127.0.0.1.evil.example" }, "ClientConfig.BaseURL: want https"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := stripehook.ClientConfig{APIKey: liveKey, Mode: stripehook.Live}
			tt.change(&cfg)
			c, err := stripehook.NewClient(cfg)
			if err == nil || c != nil || !strings.Contains(err.Error(), "stripehook: "+tt.want) {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
	for _, base := range []string{
		"", "https://stripe.internal:8443", "http://127.0.0.1:12111", "http://[::1]:1/",
		"http://localhost",
	} {
		if _, err := stripehook.NewClient(stripehook.ClientConfig{
			APIKey: liveKey, Mode: stripehook.Live,
			BaseURL: base,
		}); err != nil {
			t.Error(err)
		}
	}
	shared := &http.Client{}
	if _, err := stripehook.NewClient(stripehook.ClientConfig{
		APIKey: liveKey, Mode: stripehook.Live,
		HTTP: shared,
	}); err != nil || shared.CheckRedirect != nil {
		t.Errorf("error %v; the caller's client was changed: %v", err, shared.CheckRedirect != nil)
	}
}

func TestNewBackfillRefuses(t *testing.T) {
	store := consumertest.NewStore()
	w := &world{ids: map[string]bool{}}
	billing := w.consumer(t, consumer.Config[tx]{Store: store})
	short, err := consumer.New(consumer.Config[tx]{
		Name: "short", Store: store, Key: consumer.MessageID,
		Window: 34*24*time.Hour - 1, HandleBatch: func(context.Context, tx, []*consumer.Message) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	checkpoint, err := webhook.NewCheckpoint(store, "stripe", window)
	if err != nil {
		t.Fatal(err)
	}
	client, err := stripehook.NewClient(stripehook.ClientConfig{APIKey: liveKey, Mode: stripehook.Live})
	if err != nil {
		t.Fatal(err)
	}
	ofAccount, err := stripehook.NewClient(stripehook.ClientConfig{
		APIKey: liveKey, Mode: stripehook.Live,
		Account: "acct_2",
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		change func(*stripehook.BackfillConfig[tx])
		want   string
	}{
		{"no client", func(c *stripehook.BackfillConfig[tx]) { c.Client = nil }, "Client is required"},
		{"no processor", func(c *stripehook.BackfillConfig[tx]) { c.Processor = nil }, "Processor is required"},
		{
			"a nil processor", func(c *stripehook.BackfillConfig[tx]) { c.Processor = (*consumer.Consumer[tx])(nil) },
			"Processor is required",
		},
		{
			"a short window", func(c *stripehook.BackfillConfig[tx]) { c.Processor = short },
			"Processor forgets keys after 815h59m59.999999999s",
		},
		{"no checkpoint", func(c *stripehook.BackfillConfig[tx]) { c.Checkpoint = nil }, "Checkpoint is required"},
		{"no start", func(c *stripehook.BackfillConfig[tx]) { c.Since = time.Time{} }, "Since is required"},
		{"no verifier", func(c *stripehook.BackfillConfig[tx]) { c.Verifier = nil }, "Verifier is required"},
		{
			"an account that webhooks do not name", func(c *stripehook.BackfillConfig[tx]) { c.Client = ofAccount },
			"Client is for the account acct_2",
		},
		{"an account that not all webhooks name", func(c *stripehook.BackfillConfig[tx]) {
			c.Client, c.Verifier = ofAccount, newVerifier(t,
				stripehook.Config{Secrets: append(liveSecrets[:1:1], stripehook.Secret{Value: testSecret, Mode: stripehook.Test, Connect: true})})
		}, "Client is for the account acct_2"},
		{"many types", func(c *stripehook.BackfillConfig[tx]) { c.Types = make([]string, 21) }, "Types has 21 types"},
		{
			"a pattern", func(c *stripehook.BackfillConfig[tx]) { c.Types = []string{"invoice.*"} },
			`Types[0] is "invoice.*"`,
		},
		{"overlap", func(c *stripehook.BackfillConfig[tx]) { c.Overlap = -1 }, "Overlap is -1ns"},
		{
			"overlap that overflows", func(c *stripehook.BackfillConfig[tx]) { c.Overlap = 1<<63 - 1 },
			"Overlap is 2562047h",
		},
		{"pages", func(c *stripehook.BackfillConfig[tx]) { c.MaxPages = -1 }, "MaxPages is -1"},
		{"interval", func(c *stripehook.BackfillConfig[tx]) { c.Interval = -1 }, "Interval is -1ns"},
		{
			"an interval without a pause", func(c *stripehook.BackfillConfig[tx]) { c.Interval = time.Second - 1 },
			"Interval is 999.999999ms",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := stripehook.BackfillConfig[tx]{
				Client: client, Verifier: newVerifier(t, stripehook.Config{}),
				Processor: billing, Checkpoint: checkpoint, Since: now,
			}
			tt.change(&cfg)
			b, err := stripehook.NewBackfill(cfg)
			if err == nil || b != nil || !strings.Contains(err.Error(), "stripehook: BackfillConfig."+tt.want) {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
}
