package shopifyhook_test

import (
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/webhook/shopifyhook"
	"github.com/txonce/txonce/internal/test/verifiers"
)

func TestConfig(t *testing.T) {
	secrets := func(secrets ...string) func(*shopifyhook.Config) {
		return func(c *shopifyhook.Config) { c.Secrets = secrets }
	}
	for _, test := range []struct {
		name   string
		change func(*shopifyhook.Config)
		wants  []string // parts of the error; none: accepted
	}{
		{"as in the documentation", func(*shopifyhook.Config) {}, nil},
		{"several secrets", secrets(secret, oldSecret), nil},
		{"a secret of 32 hex digits", secrets(secret[6:]), nil},
		{"one shop", oneShop, nil},
		{"trusted headers", func(c *shopifyhook.Config) { trustTopic(c); trustShop(c) }, nil},
		{"case 52: no secret", secrets(), []string{"Config.Secrets is required", "client secret"}},
		{"case 52: empty", secrets(secret, ""), []string{"Config.Secrets[1] is empty", "copy"}},
		{
			"case 52: white space", secrets("                            "),
			[]string{"Config.Secrets[0] is only white space"},
		},
		{"case 52: short", secrets("0123456789abcdef0123456"), []string{"Config.Secrets[0] is shorter than 24 bytes", "copy"}},
		{"case 52: with a newline", secrets(secret + "\n"), []string{"Config.Secrets[0] begins or ends with white space"}},
		{
			"case 52: an access token", secrets("shpat_0123456789abcdef0123456789abcdef"),
			[]string{"Config.Secrets[0] is an access token", "client secret"},
		},
		{
			"no endpoint", func(c *shopifyhook.Config) { c.Endpoint = "" },
			[]string{"Config.Endpoint is required", "name the subscription"},
		},
		{"an endpoint with a space", func(c *shopifyhook.Config) { c.Endpoint = "a b" }, []string{"Config.Endpoint"}},
		{
			"a long endpoint", func(c *shopifyhook.Config) { c.Endpoint = strings.Repeat("a", 129) },
			[]string{"Config.Endpoint"},
		},
		{
			"E17: no topic", func(c *shopifyhook.Config) { c.Topic = "" },
			[]string{"Config.Topic is required", "TrustTopicHeader"},
		},
		{
			"E17: a topic and its header", func(c *shopifyhook.Config) { c.TrustTopicHeader = true },
			[]string{"Config.Topic and TrustTopicHeader are both set"},
		},
		{"a topic with a colon", func(c *shopifyhook.Config) { c.Topic = "orders:paid" }, []string{"Config.Topic"}},
		{
			"a shop and its header", func(c *shopifyhook.Config) { oneShop(c); trustShop(c) },
			[]string{"Config.Shop and TrustShopHeader are both set"},
		},
		{
			"a shop's URL", func(c *shopifyhook.Config) { c.Shop = "https://" + shop },
			[]string{"Config.Shop", "want a domain"},
		},
		{
			"several faults at once", func(c *shopifyhook.Config) { *c = shopifyhook.Config{} },
			[]string{"Config.Endpoint", "Config.Secrets", "Config.Topic"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := shopifyhook.Config{Endpoint: "orders", Topic: topic, Secrets: []string{secret}}
			test.change(&cfg)
			v, err := shopifyhook.New(cfg)
			verifiers.CheckNew(t, v, err, test.wants, secret)
		})
	}
}
