package standardhook_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook/standardhook"
)

func TestConfig(t *testing.T) {
	short := "whsec_" + base64.StdEncoding.EncodeToString([]byte("0123456789abcdef0123456"))
	long := "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("ab"), 33))
	zeros := base64.StdEncoding.EncodeToString(make([]byte, 32))
	privateKey := "whsk_" + base64.StdEncoding.EncodeToString(private)
	for _, test := range []struct {
		name   string
		mangle func(*standardhook.Config)
		wants  []string // parts of the error
	}{
		{"no sender", func(c *standardhook.Config) { c.Sender = "" }, []string{"Config.Sender is required"}},
		{
			"a sender with a slash, which could be an endpoint", func(c *standardhook.Config) { c.Sender = "a/b" },
			[]string{"Config.Sender"},
		},
		{
			"a sender with a package of its own", func(c *standardhook.Config) { c.Sender = "stripe" },
			[]string{"Config.Sender is \"stripe\", and package stripehook"},
		},
		{"a sender in capitals", func(c *standardhook.Config) { c.Sender = "Clerk" }, []string{"Config.Sender"}},
		{"a sender with a space inside", func(c *standardhook.Config) { c.Sender = "a b" }, []string{"Config.Sender"}},
		{"an endpoint with a space", func(c *standardhook.Config) { c.Endpoint = "a b" }, []string{"Config.Endpoint"}},
		{
			"a long endpoint", func(c *standardhook.Config) { c.Endpoint = strings.Repeat("a", 129) },
			[]string{"Config.Endpoint"},
		},
		{
			"case 52: no key", func(c *standardhook.Config) { c.Secrets = nil },
			[]string{"Config.Secrets is required", "whsec_"},
		},
		{
			"case 52: empty", func(c *standardhook.Config) { c.Secrets = []string{secret, ""} },
			[]string{"Config.Secrets[1] is empty", "copy"},
		},
		{
			"case 52: white space", func(c *standardhook.Config) { c.Secrets = []string{" \t\n"} },
			[]string{"Config.Secrets[0] is empty"},
		},
		{
			"case 52: whsec_ only", func(c *standardhook.Config) { c.Secrets = []string{"whsec_"} },
			[]string{"Config.Secrets[0] is whsec_ without a secret"},
		},
		{
			"case 52: whsec_ and padding only", func(c *standardhook.Config) { c.Secrets = []string{"whsec_===="} },
			[]string{"Config.Secrets[0] is not base64"},
		},
		{
			"case 52: short", func(c *standardhook.Config) { c.Secrets = []string{short} },
			[]string{"Config.Secrets[0] is shorter than 24 bytes", "copy"},
		},
		{
			"case 52: long", func(c *standardhook.Config) { c.Secrets = []string{long} },
			[]string{"Config.Secrets[0] has 66 bytes"},
		},
		{
			"case 52: zeros", func(c *standardhook.Config) { c.Secrets = []string{"whsec_" + zeros} },
			[]string{"Config.Secrets[0] is one byte again and again"},
		},
		{
			"case 52: with a newline", func(c *standardhook.Config) { c.Secrets = []string{secret + "\n"} },
			[]string{"Config.Secrets[0] is not base64", "newlines"},
		},
		{
			"case 52: with a newline inside, which base64 skips",
			func(c *standardhook.Config) { c.Secrets = []string{secret[:10] + "\n" + secret[10:]} },
			[]string{"Config.Secrets[0] is not base64"},
		},
		{
			"case 52: without whsec_", func(c *standardhook.Config) { c.Secrets = []string{secret[6:]} },
			[]string{"Config.Secrets[0] does not begin with whsec_"},
		},
		{
			"case 50: a public key as secret", func(c *standardhook.Config) { c.Secrets = []string{publicKey} },
			[]string{"Config.Secrets[0] is a public key", "PublicKeys"},
		},
		{
			"case 50: a private key as secret", func(c *standardhook.Config) { c.Secrets = []string{privateKey} },
			[]string{"Config.Secrets[0] is a private key"},
		},
		{
			"case 52: an empty public key", func(c *standardhook.Config) { c.PublicKeys = []string{""} },
			[]string{"Config.PublicKeys[0] is empty"},
		},
		{
			"case 52: whpk_ only", func(c *standardhook.Config) { c.PublicKeys = []string{"whpk_"} },
			[]string{"Config.PublicKeys[0] has 0 bytes"},
		},
		{
			"case 52: a public key of zeros", func(c *standardhook.Config) { c.PublicKeys = []string{"whpk_" + zeros} },
			[]string{"Config.PublicKeys[0] is a point of low order"},
		},
		{
			"a public key that is cut", func(c *standardhook.Config) { c.PublicKeys = []string{publicKey[:20]} },
			[]string{"Config.PublicKeys[0]"},
		},
		{
			"a secret as public key", func(c *standardhook.Config) { c.PublicKeys = []string{secret} },
			[]string{"Config.PublicKeys[0] is a secret"},
		},
		{
			"a private key as public key", func(c *standardhook.Config) { c.PublicKeys = []string{privateKey} },
			[]string{"Config.PublicKeys[0] is a private key"},
		},
		{
			"a public key without whpk_", func(c *standardhook.Config) { c.PublicKeys = []string{publicKey[5:]} },
			[]string{"Config.PublicKeys[0] does not begin with whpk_"},
		},
		{
			"case 48: a negative tolerance", func(c *standardhook.Config) { c.Tolerance = -1 },
			[]string{"Config.Tolerance"},
		},
		{
			"case 48: a tolerance that is none", func(c *standardhook.Config) { c.Tolerance = math.MaxInt64 },
			[]string{"Config.Tolerance"},
		},
		{
			"an age without a time", func(c *standardhook.Config) { c.GiveUpAfter = time.Hour },
			[]string{"Config.GiveUpAfter needs a TimeField", "webhook.NewInbox"},
		},
		{"a negative age", func(c *standardhook.Config) { c.GiveUpAfter = -1 }, []string{"Config.GiveUpAfter"}},
		{"a negative horizon", func(c *standardhook.Config) { c.Horizon = -1 }, []string{"Config.Horizon"}},
		{
			"a horizon before the last attempt", func(c *standardhook.Config) {
				c.TimeField, c.Horizon = "timestamp",
					time.Hour
			},
			[]string{"Horizon"},
		},
		{
			"several faults at once", func(c *standardhook.Config) { *c = standardhook.Config{Tolerance: -1} },
			[]string{"Config.Sender", "Config.Secrets", "Config.Tolerance"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			cfg := standardhook.Config{Sender: "clerk", Secrets: []string{secret}}
			test.mangle(&cfg)
			v, err := standardhook.New(cfg)
			if v != nil || err == nil {
				t.Fatalf("New = %v, %v", v, err)
			}
			for _, want := range test.wants {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error %q does not contain %q", err, want)
				}
			}
			for _, s := range cfg.Secrets {
				if s := strings.TrimSpace(s); len(s) > 8 && strings.Contains(err.Error(), s) {
					t.Errorf("the error contains the secret: %v", err)
				}
			}
		})
	}
}

func TestConfigAccepts(t *testing.T) {
	for _, test := range []struct {
		name string
		cfg  standardhook.Config
	}{
		{"24 bytes", standardhook.Config{Secrets: []string{"whsec_" + base64.StdEncoding.EncodeToString([]byte("0123456789abcdef01234567"))}}},
		{"64 bytes", standardhook.Config{Secrets: []string{"whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("ab"), 32))}}},
		{"without padding", standardhook.Config{Secrets: []string{strings.TrimRight(secret, "=")}}},
		{"only a public key", standardhook.Config{PublicKeys: []string{publicKey}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.cfg.Sender = "a-b_c.9"
			if _, err := standardhook.New(test.cfg); err != nil {
				t.Error(err)
			}
		})
	}
}

// The eight points of low order, and their second encodings. For most of them this test also finds a signature without
// a private key, which package ed25519 accepts: so New must not.
func TestLowOrderPublicKeys(t *testing.T) {
	p := new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 255), big.NewInt(19))
	encode := func(y *big.Int, sign byte) []byte {
		key := make([]byte, 32)
		y.FillBytes(key)
		for i := range 16 {
			key[i], key[31-i] = key[31-i], key[i]
		}
		key[31] |= sign << 7
		return key
	}
	order8 := orderEight(p)
	one, minusOne := big.NewInt(1), new(big.Int).Sub(p, big.NewInt(1))
	forged := 0
	for name, y := range map[string]*big.Int{
		"0": new(big.Int), "1": one, "-1": minusOne, "order 8": order8, "order 8, negative": new(big.Int).Sub(p,
			order8),
		"0 as p": p, "1 as p+1": new(big.Int).Add(p, one),
	} {
		for sign := range byte(2) {
			key := encode(y, sign)
			public := "whpk_" + base64.StdEncoding.EncodeToString(key)
			if _, err := standardhook.New(standardhook.Config{Sender: "a", PublicKeys: []string{public}}); err == nil {
				t.Errorf("New accepts the point of low order %s, %s", name, hex.EncodeToString(key))
			}
			if forge(key) {
				forged++
			}
		}
	}
	if forged < 4 {
		t.Errorf("a signature was forged for %d of the keys only: does this test still show the attack?", forged)
	}
}

// orderEight returns the y coordinate of a point of order 8. Such a point doubles to one with y = 0, so x² = -y², and
// the equation of the curve, -x² + y² = 1 + d x² y², becomes d y⁴ + 2 y² - 1 = 0.
func orderEight(p *big.Int) *big.Int {
	d := new(big.Int).ModInverse(big.NewInt(121666), p)
	d.Mul(d, big.NewInt(-121665)).Mod(d, p)
	root := new(big.Int).ModSqrt(new(big.Int).Mod(new(big.Int).Add(d, big.NewInt(1)), p), p)
	for range 2 {
		square := new(big.Int).Sub(root, big.NewInt(1)) // y² = (-1 ± √(1+d)) / d
		square.Mul(square, new(big.Int).ModInverse(d, p)).Mod(square, p)
		if y := new(big.Int).ModSqrt(square, p); y != nil {
			return y
		}
		root.Neg(root).Mod(root, p)
	}
	panic("no point of order 8")
}

// forge looks for a signature of key without a private key: with S = 0 and R = the neutral element, it is right for
// each message whose hash is a multiple of the key's order.
func forge(key []byte) bool {
	signature := make([]byte, 64)
	signature[0] = 1 // R is the neutral element
	for n := range 64 {
		message := fmt.Appendf(nil, "message %d", n)
		if ed25519.Verify(key, message, signature) {
			return true
		}
	}
	return false
}
