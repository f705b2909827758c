package hmachook_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/hmachook"
)

func TestConfig(t *testing.T) {
	type edit = func(*hmachook.Config)
	for _, test := range []struct {
		name string
		edit edit
		want string // "": accepted
	}{
		{"the least", func(*hmachook.Config) {}, ""},
		{"no name", func(c *hmachook.Config) { c.Name = "" }, `Name is "": want a name of the sender, such as square: a-z, 0-9, _ and -, at most 64`},
		{
			"a sender with a package of its own", func(c *hmachook.Config) { c.Name = "github" },
			`Name is "github", and package githubhook makes keys with that name: use that package, or choose another name`,
		},
		{
			"a slash in the name", func(c *hmachook.Config) { c.Name = "a/b" },
			`Name is "a/b": want a name of the sender, such as square: a-z, 0-9, _ and -, at most 64`,
		},
		{
			"case 52: no secrets", func(c *hmachook.Config) { c.Secrets = nil },
			"Secrets is required, or PublicKeys: copy the signing secret of the endpoint from the sender",
		},
		{
			"case 52: an empty secret", func(c *hmachook.Config) { c.Secrets = []string{secret, ""} },
			"Secrets[1] is empty: copy the signing secret of the endpoint from the sender",
		},
		{
			"case 52: white space", func(c *hmachook.Config) { c.Secrets = []string{"                     "} },
			"Secrets[0] is empty: copy the signing secret of the endpoint from the sender",
		},
		{
			"case 52: a line break at the end", func(c *hmachook.Config) { c.Secrets = []string{secret + "\n"} },
			"Secrets[0] begins or ends with white space: copy the signing secret of the endpoint from the sender",
		},
		{
			"case 52: a short secret", func(c *hmachook.Config) { c.Secrets = []string{"fifteen bytes !"} },
			"Secrets[0] has 15 bytes, fewer than 16: copy the signing secret of the endpoint from the sender, or let it make a longer one",
		},
		{"case 52: a secret that is short when decoded", func(c *hmachook.Config) {
			c.Secrets, c.SecretEncoding = []string{strings.Repeat("00", 15)}, hmachook.Hex
		}, "Secrets[0] has 15 bytes, fewer than 16: copy the signing secret of the endpoint from the sender, or let it make a longer one"},
		{
			"case 52: no hexadecimal secret", func(c *hmachook.Config) { c.SecretEncoding = hmachook.Hex },
			"Secrets[0] is not written as SecretEncoding says: copy it again, or set another SecretEncoding",
		},
		{
			"case 52: no base64 secret", func(c *hmachook.Config) { c.SecretEncoding = hmachook.Base64 },
			"Secrets[0] is not written as SecretEncoding says: copy it again, or set another SecretEncoding",
		},
		{
			"an unknown encoding of secrets", func(c *hmachook.Config) { c.SecretEncoding = 9 },
			"SecretEncoding is 9: want Plain, Hex or Base64",
		},
		{
			"case 50: SHA-1", func(c *hmachook.Config) { c.Hash = hmachook.SHA1 },
			"Hash is SHA1: use another one if the sender offers it, or accept RiskSHA1",
		},
		{"case 50: an unknown hash", func(c *hmachook.Config) { c.Hash = 9 }, "Hash is 9: want SHA256, SHA512 or SHA1"},
		{
			"no signature", func(c *hmachook.Config) { c.SignatureHeader = "" },
			`SignatureHeader is "": want the name of the header that has the signature`,
		},
		{
			"a bad name of a header", func(c *hmachook.Config) { c.SignatureHeader = "X Signature:" },
			`SignatureHeader is "X Signature:": want the name of the header that has the signature`,
		},
		{
			"no encoding", func(c *hmachook.Config) { c.SignatureEncoding = hmachook.Plain },
			"SignatureEncoding is required: Hex or Base64",
		},
		{
			"an element without a separator", func(c *hmachook.Config) { c.SignatureElement = "v1" },
			"SignatureElement and Config.ElementSeparator belong together: set both, or none of them",
		},
		{
			"one element for two things", func(c *hmachook.Config) { *c = timed(); c.TimestampElement = "h1" },
			`TimestampElement is "h1", as SignatureElement is: they are different elements`,
		},
		{
			"an unknown risk", func(c *hmachook.Config) { c.AcceptedRisks = []hmachook.Risk{"RiskMD5"} },
			`AcceptedRisks contains "RiskMD5"; the risks that can be accepted here are ["RiskSHA1" "RiskUnsignedTopic"]`,
		},
		{
			"E17: a topic from a header", func(c *hmachook.Config) { c.TopicHeader = "X-Topic" },
			"TopicHeader is not signed: use TopicPath, or Topic with an endpoint for each type, or accept RiskUnsignedTopic",
		},

		{
			"an unsigned body", func(c *hmachook.Config) { c.Signed = "{url}" },
			`Signed is "{url}": {body} occurs 0 times: want it once`,
		},
		{
			"the body twice", func(c *hmachook.Config) { c.Signed = "{body}.{body}" },
			`Signed is "{body}.{body}": {body} occurs 2 times: want it once`,
		},
		{
			"an unknown part", func(c *hmachook.Config) { c.Signed = "{id}.{body}" },
			`Signed is "{id}.{body}": "{id}" is unknown: want {body}, {timestamp}, {url} and {header:Name}, and other text without braces`,
		},
		{
			"an open brace", func(c *hmachook.Config) { c.Signed = "{body}{" },
			`Signed is "{body}{": "{" is unknown: want {body}, {timestamp}, {url} and {header:Name}, and other text without braces`,
		},
		{"case 55: a digit after the timestamp", func(c *hmachook.Config) { *c = timed(); c.Signed = "{timestamp}0{body}" }, `Signed is "{timestamp}0{body}": a digit follows {timestamp}, so that it is unclear where the timestamp ends`},
		{"case 55: a digit before the timestamp", func(c *hmachook.Config) { *c = timed(); c.Signed = "v0{timestamp}:{body}" }, `Signed is "v0{timestamp}:{body}": "v0" ends in a digit and {timestamp} follows, so that it is unclear where the timestamp begins`},
		{"case 55: the URL after the timestamp", func(c *hmachook.Config) { *c = timed(); c.Signed = "{timestamp}{url}{body}" }, `Signed is "{timestamp}{url}{body}": {timestamp} is next to {url}, so that it is unclear where the timestamp ends`},
		{"case 55: the timestamp after the URL", func(c *hmachook.Config) { *c = timed(); c.Signed = "{url}{timestamp}.{body}" }, `Signed is "{url}{timestamp}.{body}": {timestamp} is next to {url}, so that it is unclear where the timestamp ends`},

		{
			"case 55: a header beside a header", func(c *hmachook.Config) { c.Signed = "{header:A}{header:B}{body}" },
			`Signed is "{header:A}{header:B}{body}": {header:A} and {header:B} touch, so that it is unclear where one of them ends`,
		},
		{
			"case 55: a header beside the URL", func(c *hmachook.Config) { c.Signed = "{url}{header:A}{body}" },
			`Signed is "{url}{header:A}{body}": {header:A} and {url} touch, so that it is unclear where one of them ends`,
		},
		{"case 55: a header beside digits", func(c *hmachook.Config) {
			c.TimestampHeader, c.Signed = "X-Time", "{header:A}{timestamp}{body}"
		}, `Signed is "{header:A}{timestamp}{body}": {header:A} and {timestamp} touch, so that it is unclear where one of them ends`},
		{"case 55: a header after a time", func(c *hmachook.Config) {
			*c = withID("{timestamp}{header:A}{body}")
		}, `Signed is "{timestamp}{header:A}{body}": {header:A} and {timestamp} touch, so that it is unclear where one of them ends`},
		{"case 55: a header before a time that other text follows", func(c *hmachook.Config) {
			*c = withID("{header:A}{timestamp}.{body}")
		}, `Signed is "{header:A}{timestamp}.{body}": {header:A} and {timestamp} touch, so that it is unclear where one of them ends`},
		{
			"a header without a name", func(c *hmachook.Config) { c.Signed = "{header:}.{body}" },
			`Signed is "{header:}.{body}": "{header:}": want the name of a header after the colon`,
		},
		{
			"a header twice", func(c *hmachook.Config) { c.Signed = "{header:A}.{header:a}.{body}" },
			`Signed is "{header:A}.{header:a}.{body}": {header:a} occurs twice: want it once`,
		},
		{
			"a signature of itself", func(c *hmachook.Config) { c.Signed = "{header:x-signature}.{body}" },
			`Signed has the header X-Signature, which is SignatureHeader: no signature covers itself`,
		},
		{"the timestamp as a header", func(c *hmachook.Config) {
			c.TimestampHeader, c.Signed = "X-Time", "{header:X-Time}.{timestamp}.{body}"
		}, `Signed has the header X-Time, which is TimestampHeader: write {timestamp}`},
		{"a signed topic needs no risk", func(c *hmachook.Config) { c.TopicHeader, c.Signed = "X-Topic", "{header:x-topic}.{body}" }, ""},
		{
			"a handshake without a path", func(c *hmachook.Config) { c.Handshake.Value = "1" },
			"Handshake.Path is required with the other fields of Handshake: name a field that only a handshake has",
		},
		{"two answers to a handshake", func(c *hmachook.Config) {
			c.Handshake = hmachook.Handshake{Path: "a", ReplyPath: "a", Reply: webhook.Reply{Body: []byte("x")}}
		}, "Handshake.ReplyPath and Handshake.Reply.Body are alternatives: set one of them"},
		{"a redirect as the answer to a handshake", func(c *hmachook.Config) {
			c.Handshake = hmachook.Handshake{Path: "a", Reply: webhook.Reply{Status: 302}}
		}, "Handshake.Reply.Status is 302: want a status from 200 to 299, or 0 for 200"},

		{
			"an unsigned timestamp", func(c *hmachook.Config) { c.TimestampHeader = "X-Time" },
			"Signed has no {timestamp}, so it is not signed: add it as the sender's documentation says",
		},
		{
			"a timestamp from nowhere", func(c *hmachook.Config) { c.Signed = "{timestamp}.{body}" },
			"Signed has {timestamp}: set TimestampHeader or TimestampElement to say where it is",
		},
		{
			"two timestamps", func(c *hmachook.Config) { *c = timed(); c.TimestampHeader = "X-Time" },
			"TimestampHeader, TimestampElement and TimestampPath are alternatives: set one of them",
		},
		{
			"a tolerance without a timestamp", func(c *hmachook.Config) { c.Tolerance = time.Minute },
			"Tolerance and TimestampFormat have no effect without a timestamp: set TimestampHeader, TimestampElement or TimestampPath",
		},
		{"a timestamp of no elements", func(c *hmachook.Config) { c.TimestampElement, c.Signed = "t", "{timestamp}.{body}" }, "TimestampElement needs SignatureElement: they are elements of one header"},
		{
			"an unknown format", func(c *hmachook.Config) { *c = timed(); c.TimestampFormat = 9 },
			"TimestampFormat is 9: want UnixSeconds, UnixMillis or RFC3339",
		},
		{"a bad header of the timestamp", func(c *hmachook.Config) { c.TimestampHeader, c.Signed = "X:", "{timestamp}.{body}" }, `TimestampHeader is "X:": want the name of a header`},
		{
			"E22: a negative tolerance", func(c *hmachook.Config) { *c = timed(); c.Tolerance = -1 },
			"Tolerance is -1ns: want more than 0, or 0 for 5 minutes",
		},

		{"no id", func(c *hmachook.Config) { c.IDPaths = nil }, "IDPaths is required: name the field of the body that identifies an event, or set IDHeader if no field does"},
		{
			"two ids", func(c *hmachook.Config) { c.IDHeader = "X-ID" },
			"IDHeader and IDPaths are both set: use IDPaths alone, because the body is signed",
		},
		{
			"an empty name in a path", func(c *hmachook.Config) { c.IDPaths = []string{"id", "a..b"} },
			`IDPaths[1] is "a..b": want names of fields with dots between them`,
		},
		{
			"an empty path", func(c *hmachook.Config) { c.FingerprintPaths = []string{""} },
			`FingerprintPaths[0] is "": want names of fields with dots between them`,
		},
		{"case 67: one id for a batch", func(c *hmachook.Config) { c.IDPaths, c.IDHeader, c.ItemsPath = nil, "X-ID", "items" }, "IDHeader identifies one event, and with ItemsPath a delivery has several: set IDPaths"},
		{
			"a bad header of the id", func(c *hmachook.Config) { c.IDPaths, c.IDHeader = nil, "X:" },
			`IDHeader is "X:": want the name of a header`,
		},
		{
			"two topics", func(c *hmachook.Config) { c.Topic, c.TopicPath = "a", "b" },
			"Topic, TopicPath and TopicHeader are alternatives: set one of them",
		},
		{"a bad header of the topic", func(c *hmachook.Config) {
			c.TopicHeader, c.AcceptedRisks = "X:", []hmachook.Risk{hmachook.RiskUnsignedTopic}
		}, `TopicHeader is "X:": want the name of a header`},
		{
			"a slash in the scope", func(c *hmachook.Config) { c.Scope = "a/b" },
			`Scope is "a/b": want at most 60 printable bytes without a slash`,
		},
		{
			"a format of nothing", func(c *hmachook.Config) { c.CreatedFormat = hmachook.UnixMillis },
			"CreatedFormat has no effect without CreatedPath",
		},
		{
			"an unknown format of the creation", func(c *hmachook.Config) { c.CreatedPath, c.CreatedFormat = "at", 9 },
			"CreatedFormat is 9: want RFC3339, UnixSeconds or UnixMillis",
		},

		{
			"E20: an age that is unknown", func(c *hmachook.Config) { c.GiveUpAfter = time.Hour },
			"GiveUpAfter needs CreatedPath: without it the age of an event is unknown",
		},
		{
			"E26: a short horizon", func(c *hmachook.Config) { c.Horizon = 31 * 24 * time.Hour },
			"Horizon is 31 days: want 400 days or more, because a sender that signs no time cannot prevent that a captured delivery is repeated later; set CreatedPath or a timestamp if the sender has one",
		},
		{"E26: a short horizon with a timestamp", func(c *hmachook.Config) { *c = timed(); c.Horizon = 31 * 24 * time.Hour }, ""},
		{"E26: a short horizon with a creation time", func(c *hmachook.Config) { c.CreatedPath, c.Horizon = "at", 31*24*time.Hour }, ""},
		{"a negative deadline", func(c *hmachook.Config) { c.Deadline = -1 }, "Deadline is -1ns: want 0 or more"},
		{
			"E24: a redirect as the reply", func(c *hmachook.Config) { c.Reply.Status = 301 },
			"Reply.Status is 301: want a status from 200 to 299, or 0 for 200",
		},
		{
			"E24: 410 as the reply", func(c *hmachook.Config) { c.Reply.Status = 410 },
			"Reply.Status is 410: want a status from 200 to 299, or 0 for 200",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := simple()
			test.edit(&cfg)
			want := test.want
			if want != "" {
				want = "hmachook: Config." + want
			}
			got := ""
			if _, err := hmachook.New(cfg); err != nil {
				got = err.Error()
			}
			if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
	t.Run("all that is wrong", func(t *testing.T) {
		_, err := hmachook.New(hmachook.Config{})
		for _, field := range []string{"Name", "Secrets", "SignatureHeader", "SignatureEncoding", "IDPaths"} {
			if err == nil || !strings.Contains(err.Error(), "hmachook: Config."+field+" is") {
				t.Errorf("%s is not named: %v", field, err)
			}
		}
	})
}

func TestSource(t *testing.T) {
	if diff := cmp.Diff(webhook.Source{Name: "acme", Horizon: 400 * 24 * time.Hour},
		newVerifier(t, simple()).Source()); diff != "" {
		t.Errorf("E26: (-want +got)\n%s", diff)
	}
	cfg := with(simple(), func(c *hmachook.Config) {
		c.CreatedPath, c.Horizon, c.GiveUpAfter, c.Deadline = "at", 72*time.Hour, 71*time.Hour, 10*time.Second
		c.Reply = webhook.Reply{ContentType: "text/plain", Body: []byte("[accepted]")}
	})
	want := webhook.Source{
		Name: "acme", Horizon: 72 * time.Hour, Deadline: 10 * time.Second,
		GiveUpAfter: 71 * time.Hour, Reply: cfg.Reply,
	}
	if diff := cmp.Diff(want, newVerifier(t, cfg).Source()); diff != "" {
		t.Errorf("E24: (-want +got)\n%s", diff)
	}
}
