package standardhook_test

import (
	"encoding/base64"
	"testing"

	"github.com/txonce/txonce/adapters/webhook/standardhook"
	"github.com/txonce/txonce/internal/test/verifiers"
)

func TestSign(t *testing.T) {
	v := newVerifier(t, standardhook.Config{Secrets: []string{secret}, PublicKeys: []string{publicKey}})
	for _, test := range []struct{ name, key, want string }{
		{"a secret", secret, v1(secret, id, unix(now), body)},
		{"a private key", "whsk_" + base64.StdEncoding.EncodeToString(private), v1a(private, id, unix(now), body)},
		{
			"the seed of a private key", "whsk_" + base64.StdEncoding.EncodeToString(private.Seed()),
			v1a(private, id, unix(now), body),
		},
		{"an empty secret", "", ""},
		{"half of a private key", "whsk_" + base64.StdEncoding.EncodeToString(private[:16]), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, err := standardhook.Sign(test.key, id, now, []byte(body))
			if test.want == "" {
				if err == nil {
					t.Errorf("Sign = %v", h)
				}
				return
			}
			if err != nil || h.Get("webhook-signature") != test.want {
				t.Fatalf("Sign = %v, %v; want the signature %s", h, err, test.want)
			}
			if _, refusal := verifiers.Verify(t, v, h, body, now); refusal != "" {
				t.Errorf("refused as %q", refusal)
			}
		})
	}
}
