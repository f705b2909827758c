package stripehook_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook/stripehook"
)

func TestNewRefuses(t *testing.T) {
	one := func(value string) []stripehook.Secret {
		return []stripehook.Secret{{Value: value, Mode: stripehook.Live}}
	}
	const copied = "copy the endpoint's signing secret, which begins with whsec_"
	for _, tt := range []struct {
		name string
		cfg  stripehook.Config
		want []string // in the error
	}{
		{"case 52: no secret", stripehook.Config{}, []string{"Config.Secrets is empty", copied}},
		{
			"case 52: an empty secret",
			stripehook.Config{Secrets: one("")},
			[]string{"Config.Secrets[0] is empty", copied},
		},
		{
			"case 52: white space",
			stripehook.Config{Secrets: one(strings.Repeat(" ", 40))},
			[]string{"Config.Secrets[0] contains a space", copied},
		},
		{
			"case 52: white space behind the prefix",
			stripehook.Config{Secrets: one("whsec_" + strings.Repeat("\t", 40))},
			[]string{"Config.Secrets[0] contains a space"},
		},
		{
			"case 52: a line break at the end",
			stripehook.Config{Secrets: one(liveSecret + "\n")},
			[]string{"Config.Secrets[0] contains a space, a line break"},
		},
		{
			"case 52: whsec_ only",
			stripehook.Config{Secrets: one("whsec_")},
			[]string{"Config.Secrets[0] is shorter than 24 bytes", copied},
		},
		{
			"case 52: one byte short",
			stripehook.Config{Secrets: one("whsec_78901234567890123")},
			[]string{"Config.Secrets[0] is shorter than 24 bytes"},
		},
		{
			"an API key",
			stripehook.Config{Secrets: one("sk_live_0123456789012345678901234567890")},
			[]string{"Config.Secrets[0] does not begin with whsec_"},
		},
		{
			"the second secret",
			stripehook.Config{Secrets: append(one(liveSecret), one("whsec_")...)},
			[]string{"Config.Secrets[1] is shorter"},
		},
		{
			"a secret twice",
			stripehook.Config{Secrets: append(one(liveSecret), one(liveSecret)...)},
			[]string{"Config.Secrets[1] has the same Value as Secrets[0]"},
		},
		{
			"no mode",
			stripehook.Config{Secrets: []stripehook.Secret{{Value: liveSecret}}},
			[]string{"Config.Secrets[0].Mode is Mode(0): want Live or Test"},
		},
		{
			"R4: a negative tolerance",
			stripehook.Config{Secrets: liveSecrets, Tolerance: -1},
			[]string{"Config.Tolerance is -1ns"},
		},
		{"R4: a tolerance and none", stripehook.Config{Secrets: liveSecrets, Tolerance: time.Minute, InsecureAcceptAnyAge: true}, []string{"Config.InsecureAcceptAnyAge and Config.Tolerance are both set"}},
		{
			"an account",
			stripehook.Config{Secrets: liveSecrets, Account: "acct 1"},
			[]string{`Config.Account is "acct 1"`},
		},
		{"a deadline", stripehook.Config{Secrets: liveSecrets, Deadline: -1}, []string{"Config.Deadline is -1ns"}},
		{
			"giving up after Stripe has",
			stripehook.Config{Secrets: liveSecrets, GiveUpAfter: 73 * time.Hour},
			[]string{"Config.GiveUpAfter is 73h0m0s"},
		},
		{
			"giving up before",
			stripehook.Config{Secrets: liveSecrets, GiveUpAfter: -1},
			[]string{"Config.GiveUpAfter is -1ns"},
		},
		{
			"several at once",
			stripehook.Config{Secrets: one(""), Tolerance: -1},
			[]string{"Config.Secrets[0] is empty", "Config.Tolerance"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, err := stripehook.New(tt.cfg)
			if err == nil || v != nil {
				t.Fatal("it is accepted")
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%v: want %q", err, part)
				}
			}
			for _, s := range tt.cfg.Secrets {
				if len(s.Value) > len("whsec_") && strings.Contains(err.Error(), s.Value) {
					t.Errorf("the error shows a secret: %v", err)
				}
			}
		})
	}
}

func TestNewAccepts(t *testing.T) {
	for _, value := range []string{liveSecret, "whsec_789012345678901234"} { // the latter has 24 bytes
		newVerifier(t, stripehook.Config{Secrets: []stripehook.Secret{{Value: value, Mode: stripehook.Test}}})
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	cfg := stripehook.Config{Secrets: []stripehook.Secret{{Value: liveSecret, Mode: stripehook.Live, Connect: true}}}
	client := stripehook.ClientConfig{APIKey: liveKey, Mode: stripehook.Live}
	c, err := stripehook.NewClient(client)
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if got := fmt.Sprintf(format, cfg); strings.Contains(got, liveSecret) ||
			!strings.Contains(got, "stripehook.Secret(live, Connect)") {
			t.Errorf("%s prints %s", format, got)
		}
		for _, v := range []any{newVerifier(t, cfg), client, c} {
			if got := fmt.Sprintf(format, v); strings.Contains(got, liveSecret) || strings.Contains(got, liveKey) {
				t.Errorf("%s prints %s", format, got)
			}
		}
	}
}
