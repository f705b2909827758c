package githubhook_test

import (
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/webhook/githubhook"
	"github.com/txonce/txonce/internal/test/verifiers"
)

func TestConfig(t *testing.T) {
	secrets := func(secrets ...string) func(*githubhook.Config) {
		return func(c *githubhook.Config) { c.Secrets = secrets }
	}
	for _, test := range []struct {
		name   string
		change func(*githubhook.Config)
		wants  []string // parts of the error; none: accepted
	}{
		{"as in the documentation", func(*githubhook.Config) {}, nil},
		{"several secrets", secrets(secret, oldSecret), nil},
		{"16 bytes", secrets("0123456789abcdef"), nil},
		{"case 52: no secret", secrets(), []string{"Config.Secrets is required", "set a secret"}},
		{"case 52: empty", secrets(secret, ""), []string{"Config.Secrets[1] is empty", "set a random secret"}},
		{
			"case 52: white space", secrets("                        "),
			[]string{"Config.Secrets[0] is only white space"},
		},
		{"case 52: short", secrets("0123456789abcde"), []string{"Config.Secrets[0] is shorter than 16 bytes", "set a random secret"}},
		{"case 52: with a newline", secrets(secret + "\n"), []string{"Config.Secrets[0] begins or ends with white space", "trim it"}},
		{"case 52: a placeholder", secrets("aaaaaaaaaaaaaaaaaaaa"), []string{"Config.Secrets[0]", "placeholder"}},
		{
			"no endpoint", func(c *githubhook.Config) { c.Endpoint = "" },
			[]string{"Config.Endpoint is required", "name the hook"},
		},
		{"an endpoint with a space", func(c *githubhook.Config) { c.Endpoint = "a b" }, []string{"Config.Endpoint"}},
		{
			"a long endpoint", func(c *githubhook.Config) { c.Endpoint = strings.Repeat("a", 129) },
			[]string{"Config.Endpoint"},
		},
		{
			"E17: no topic", func(c *githubhook.Config) { c.Topic = "" },
			[]string{"Config.Topic is required", "TrustTopicHeader"},
		},
		{
			"E17: a topic and its header", func(c *githubhook.Config) { c.TrustTopicHeader = true },
			[]string{"Config.Topic and TrustTopicHeader are both set"},
		},
		{"a topic with a space", func(c *githubhook.Config) { c.Topic = "a b" }, []string{"Config.Topic"}},
		{
			"several faults at once", func(c *githubhook.Config) { *c = githubhook.Config{} },
			[]string{"Config.Endpoint", "Config.Secrets", "Config.Topic"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := githubhook.Config{Endpoint: "releases-hook", Topic: "release", Secrets: []string{secret}}
			test.change(&cfg)
			v, err := githubhook.New(cfg)
			verifiers.CheckNew(t, v, err, test.wants, secret)
		})
	}
}
