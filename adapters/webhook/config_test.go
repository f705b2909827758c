package webhook_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
)

func TestNewRefusesSettings(t *testing.T) {
	none := func(*webhook.Config, *webhook.Source) {}
	for _, c := range []struct {
		name string
		set  func(*webhook.Config, *webhook.Source)
		says []string // nothing: it is accepted
	}{
		{"the defaults", none, nil},
		{
			"no verifier", func(c *webhook.Config, _ *webhook.Source) { c.Verifier = nil },
			[]string{"Config.Verifier is required"},
		},
		{
			"a nil verifier", func(c *webhook.Config, _ *webhook.Source) { c.Verifier = (*shop)(nil) },
			[]string{"Config.Verifier is required"},
		},
		{
			"no processor", func(c *webhook.Config, _ *webhook.Source) { c.Processor = nil },
			[]string{"Config.Processor is required"},
		},
		{
			"a nil processor", func(c *webhook.Config, _ *webhook.Source) { c.Processor = (*consumer.Consumer[tx])(nil) },
			[]string{"Config.Processor is required"},
		},
		{
			"case 75: a window shorter than the sender's horizon",
			func(_ *webhook.Config, s *webhook.Source) { s.Horizon = 16 * 24 * time.Hour },
			[]string{
				"Config.Processor forgets keys after 15 days", "shop may deliver an event again for 16 days",
				"RiskShortWindow",
			},
		},
		{"case 75: a window as long as the horizon", func(_ *webhook.Config, s *webhook.Source) { s.Horizon = 15 * 24 * time.Hour }, nil},
		{"case 75: a short window that is accepted", func(c *webhook.Config, s *webhook.Source) {
			s.Horizon, c.AcceptedRisks = 16*24*time.Hour, []webhook.Risk{webhook.RiskShortWindow}
		}, nil},
		{
			"E20: events without a signed time", func(_ *webhook.Config, s *webhook.Source) { s.GiveUpAfter = 0 },
			[]string{"Config.Processor", "shop signs no time", "NewInbox", "RiskUntimedInline"},
		},
		{"E20: events without a signed time, accepted", func(c *webhook.Config, s *webhook.Source) {
			s.GiveUpAfter, c.AcceptedRisks = 0, []webhook.Risk{webhook.RiskUntimedInline}
		}, nil},
		{"a risk that does not exist", func(c *webhook.Config, _ *webhook.Source) { c.AcceptedRisks = []webhook.Risk{"RiskX"} }, []string{`AcceptedRisks contains "RiskX"`}},
		{
			"several faults at once", func(c *webhook.Config, _ *webhook.Source) { c.MaxBody, c.ReadTimeout = -1, -1 },
			[]string{"Config.MaxBody is -1", "Config.ReadTimeout is -1ns"},
		},
		{
			"a status that ends subscriptions", func(c *webhook.Config, _ *webhook.Source) { c.RefusalStatus = 410 },
			[]string{"Config.RefusalStatus is 410"},
		},
		{
			"a status that means success", func(c *webhook.Config, _ *webhook.Source) { c.RefusalStatus = 200 },
			[]string{"Config.RefusalStatus is 200"},
		},
		{
			"E24: a reply that redirects", func(_ *webhook.Config, s *webhook.Source) { s.Reply.Status = 302 },
			[]string{"Config.Verifier", "Reply.Status is 302: want 2xx"},
		},
		{
			"a source without a name", func(_ *webhook.Config, s *webhook.Source) { s.Name = "" },
			[]string{"Name is empty"},
		},
		{
			"a source without a horizon", func(_ *webhook.Config, s *webhook.Source) { s.Horizon = 0 },
			[]string{"Horizon is 0s"},
		},
		{
			"a negative deadline", func(_ *webhook.Config, s *webhook.Source) { s.Deadline = -1 },
			[]string{"Deadline is -1ns"},
		},
		{
			"a MaxBody below the sender's", func(c *webhook.Config,
				s *webhook.Source,
			) {
				c.MaxBody, s.MaxBody = 1000, 1001
			},
			[]string{"Config.MaxBody is 1000, but deliveries of ", " have up to 1001 bytes", "webhook.RiskSmallBody"},
		},
		{"a MaxInFlight below two bodies", func(c *webhook.Config, s *webhook.Source) { c.MaxInFlight, s.MaxBody = 1999, 1000 }, []string{"Config.MaxInFlight is 1999: want 2000 or more"}},
		{
			"a negative MaxInFlight", func(c *webhook.Config, _ *webhook.Source) { c.MaxInFlight = -1 },
			[]string{"Config.MaxInFlight is -1"},
		},
		{
			"a negative MaxBody of the source", func(_ *webhook.Config, s *webhook.Source) { s.MaxBody = -1 },
			[]string{"Source.MaxBody is -1"},
		},
		{
			"a negative GiveUpAfter", func(_ *webhook.Config, s *webhook.Source) { s.GiveUpAfter = -1 },
			[]string{"GiveUpAfter is -1ns"},
		},
		{"a PublicURL with a path", func(c *webhook.Config, _ *webhook.Source) { c.PublicURL = "https://shop.example/api/" }, nil},
		{
			"a PublicURL without a scheme", func(c *webhook.Config, _ *webhook.Source) { c.PublicURL = "shop.example" },
			[]string{`Config.PublicURL is "shop.example"`},
		},
		{"a PublicURL with a query", func(c *webhook.Config, _ *webhook.Source) { c.PublicURL = "https://shop.example/?a=1" }, []string{"no user, query"}},
		{"a PublicURL with a user", func(c *webhook.Config, _ *webhook.Source) { c.PublicURL = "https://a:b@shop.example" }, []string{"no user"}},
		{"a PublicURL that is none", func(c *webhook.Config, _ *webhook.Source) { c.PublicURL = "https://shop example" }, []string{"Config.PublicURL"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newShop()
			cfg := webhook.Config{Verifier: s, Processor: billing(t, consumer.Config[tx]{})}
			c.set(&cfg, &s.source)
			r, err := webhook.New(cfg)
			if len(c.says) == 0 && (err != nil || r == nil) {
				t.Fatalf("New: %v", err)
			}
			for _, text := range c.says {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("New: %v, want %q", err, text)
				}
			}
		})
	}
}

func TestAnEmptyConfigNamesWhatIsRequired(t *testing.T) {
	_, err := webhook.New(webhook.Config{})
	want := "webhook: Config.Verifier is required, and must not be a nil pointer\nwebhook: Config.Processor is required, and must not be a nil pointer"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestAnInboxMayServeASourceWithoutSignedTimes(t *testing.T) {
	s := newShop()
	s.source.GiveUpAfter, s.source.Horizon = 0, 300*24*time.Hour
	if _, err := webhook.New(webhook.Config{Verifier: s, Processor: newInbox(t, consumertest.NewStore(), nil)}); err != nil {
		t.Error(err)
	}
}

// sourced is a Processor that records its sources and when it was started.
type sourced struct {
	answers
	sources []string
	starts  []error // the results of Start, one after the other
}

func (s *sourced) AddSource(source string) { s.sources = append(s.sources, source) }

func (s *sourced) Start(context.Context) error {
	err := s.starts[0]
	s.starts = s.starts[1:]
	return err
}
