package slackhook_test

import (
	"math"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/slackhook"
	"github.com/txonce/txonce/internal/test/verifiers"
)

func TestConfig(t *testing.T) {
	for _, test := range []struct {
		name  string
		cfg   slackhook.Config
		wants []string // parts of the error; none: accepted
	}{
		{"one secret", slackhook.Config{Secrets: []string{secret}}, nil},
		{"several secrets", slackhook.Config{Secrets: []string{secret, oldSecret}, Tolerance: time.Hour}, nil},
		{"case 52: no secret", slackhook.Config{}, []string{"Config.Secrets is required", "Basic Information"}},
		{
			"case 52: empty",
			slackhook.Config{Secrets: []string{secret, ""}},
			[]string{"Config.Secrets[1] is empty", "copy"},
		},
		{
			"case 52: white space",
			slackhook.Config{Secrets: []string{"                            "}},
			[]string{"Config.Secrets[0] is only white space"},
		},
		{
			"case 52: short",
			slackhook.Config{Secrets: []string{secret[:23]}},
			[]string{"Config.Secrets[0] is shorter than 24 bytes", "copy"},
		},
		{
			"case 52: with a newline",
			slackhook.Config{Secrets: []string{secret + "\n"}},
			[]string{"Config.Secrets[0] begins or ends with white space"},
		},
		{
			"case 52: a token",
			slackhook.Config{Secrets: []string{"xox" + "b-not-a-signing-secret-0123456789"}},
			[]string{"Config.Secrets[0] is a token", "signing secret"},
		},
		{
			"case 48: a negative tolerance",
			slackhook.Config{Secrets: []string{secret}, Tolerance: -1},
			[]string{"Config.Tolerance"},
		},
		{
			"case 48: a tolerance that is none",
			slackhook.Config{Secrets: []string{secret}, Tolerance: math.MaxInt64},
			[]string{"Config.Tolerance"},
		},
		{"several faults at once", slackhook.Config{Tolerance: -1}, []string{"Config.Secrets", "Config.Tolerance"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			v, err := slackhook.New(test.cfg)
			verifiers.CheckNew(t, v, err, test.wants, secret[:16])
		})
	}
}

func TestTolerance(t *testing.T) {
	v, err := slackhook.New(slackhook.Config{Secrets: []string{secret}, Tolerance: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		off  time.Duration
		want webhook.Refusal
	}{
		{-time.Minute, ""},
		{-61 * time.Second, webhook.BadTime},
		{time.Minute, ""},
		{61 * time.Second, webhook.BadTime},
	} {
		ts := unix(now.Add(test.off))
		if _, refusal := verify(t, v, headers(v0(secret, ts, body), ts), body); refusal != test.want {
			t.Errorf("case 48: %v off: refused as %q, want %q", test.off, refusal, test.want)
		}
	}
}
