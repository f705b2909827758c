package twiliohook_test

import (
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/twiliohook"
)

func TestConfig(t *testing.T) {
	identify := func(url.Values) (twiliohook.Identity, error) { return twiliohook.Identity{}, errors.New("no") }
	identifyJSON := func([]byte) ([]twiliohook.Identity, error) { return nil, errors.New("no") }
	const copyIt = ": copy the account's auth token from the Twilio console"
	for _, test := range []struct {
		name string
		cfg  twiliohook.Config
		want string
	}{
		{"case 52: no token", twiliohook.Config{}, "twiliohook: Config.AuthTokens is required" + copyIt},
		{
			"case 52: an empty token",
			twiliohook.Config{AuthTokens: []string{token, ""}},
			"twiliohook: Config.AuthTokens[1] is empty" + copyIt,
		},
		{
			"case 52: white space",
			twiliohook.Config{AuthTokens: []string{" \n\t                                    "}},
			"twiliohook: Config.AuthTokens[0] is empty" + copyIt,
		},
		{
			"case 52: a line break at the end",
			twiliohook.Config{AuthTokens: []string{token + "\n"}},
			"twiliohook: Config.AuthTokens[0] begins or ends with white space" + copyIt,
		},
		{
			"case 52: a short token",
			twiliohook.Config{AuthTokens: []string{token[1:]}},
			"twiliohook: Config.AuthTokens[0] is shorter than 32 bytes" + copyIt,
		},
		{
			"an account",
			twiliohook.Config{AuthTokens: []string{token}, AccountSids: []string{"x"}},
			`twiliohook: Config.AccountSids[0] is "x": want AC and 32 hexadecimal digits`,
		},
		{"forms and JSON", twiliohook.Config{AuthTokens: []string{token}, Identify: identify, IdentifyJSON: identifyJSON}, "twiliohook: Config.IdentifyJSON and Config.Identify are both set: use one endpoint for JSON and another one for forms"},
		{"accounts and JSON", twiliohook.Config{AuthTokens: []string{token}, AccountSids: []string{account}, IdentifyJSON: identifyJSON}, "twiliohook: Config.AccountSids has no effect with IdentifyJSON: let IdentifyJSON refuse other accounts"},
		{"E24: a redirect as the reply", twiliohook.Config{AuthTokens: []string{token}, Reply: webhook.Reply{Status: 302}}, "twiliohook: Config.Reply.Status is 302: want a status from 200 to 299, or 0 for 200"},
		{
			"a negative deadline",
			twiliohook.Config{AuthTokens: []string{token}, Deadline: -1},
			"twiliohook: Config.Deadline is -1ns: want more than 0, or 0 for the default",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := twiliohook.New(test.cfg)
			if err == nil || err.Error() != test.want {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
		})
	}
}

func TestSource(t *testing.T) {
	want := webhook.Source{
		Name: "twilio", Horizon: 400 * 24 * time.Hour, Deadline: 15 * time.Second, MaxBody: 4 << 20,
		Reply: webhook.Reply{Status: 204},
	}
	if diff := cmp.Diff(want, newVerifier(t, twiliohook.Config{}).Source()); diff != "" {
		t.Errorf("E24, E26 (-want +got)\n%s", diff)
	}
	want.Deadline, want.Reply = time.Second, webhook.Reply{
		Status: 200, ContentType: "text/xml",
		Body: []byte("<Response/>"),
	}
	if diff := cmp.Diff(want, newVerifier(t, twiliohook.Config{Deadline: time.Second, Reply: twiliohook.EmptyTwiML()}).Source()); diff != "" {
		t.Errorf("E24 (-want +got)\n%s", diff)
	}
}
