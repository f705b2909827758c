package applehook_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/applehook"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/deduptest"
)

func TestNewRefuses(t *testing.T) {
	c := newChain(t)
	for _, tt := range []struct {
		name   string
		change func(*applehook.Config)
		want   []string // in the error
	}{
		{"no bundle", func(cfg *applehook.Config) { cfg.BundleID = "" }, []string{"Config.BundleID is required"}},
		{
			"a bundle with a slash", func(cfg *applehook.Config) { cfg.BundleID = "a/b" },
			[]string{"Config.BundleID", "not a bundle identifier"},
		},
		{
			"a bundle with a space", func(cfg *applehook.Config) { cfg.BundleID = "com.example.app " },
			[]string{"Config.BundleID"},
		},
		{
			"a long bundle", func(cfg *applehook.Config) { cfg.BundleID = strings.Repeat("x", 201) },
			[]string{"Config.BundleID"},
		},
		{
			"no app ID in production", func(cfg *applehook.Config) { cfg.AppAppleID = 0 },
			[]string{"Config.AppAppleID is required in Production", "App Store Connect"},
		},
		{"a negative app ID", func(cfg *applehook.Config) { cfg.AppAppleID = -1 }, []string{"Config.AppAppleID is -1"}},
		{
			"no environment", func(cfg *applehook.Config) { cfg.Environment = "" },
			[]string{"Config.Environment is required"},
		},
		{
			"R7: Xcode", func(cfg *applehook.Config) { cfg.Environment = "Xcode" },
			[]string{`Config.Environment is "Xcode"`},
		},
		{
			"R7: LocalTesting", func(cfg *applehook.Config) { cfg.Environment = "LocalTesting" },
			[]string{"Config.Environment"},
		},
		{
			"no roots", func(cfg *applehook.Config) { cfg.Roots = []*x509.Certificate{} },
			[]string{"Config.Roots is empty", "leave it nil"},
		},
		{
			"a nil root", func(cfg *applehook.Config) { cfg.Roots = []*x509.Certificate{nil} },
			[]string{"Config.Roots[0] is nil"},
		},
		{
			"a leaf as root", func(cfg *applehook.Config) { cfg.Roots = []*x509.Certificate{c.leaf.Certificate} },
			[]string{"Config.Roots[0]", "not the certificate of an authority"},
		},
		{"an intermediate as root", func(cfg *applehook.Config) { cfg.Roots = []*x509.Certificate{c.intermediate.Certificate} }, []string{"Config.Roots[0]", "use the root itself"}},
		{
			"a client without OCSP", func(cfg *applehook.Config) { cfg.HTTPClient = http.DefaultClient },
			[]string{"Config.HTTPClient has no effect"},
		},
		{"a negative age", func(cfg *applehook.Config) { cfg.MaxAge = -1 }, []string{"Config.MaxAge"}},
		{
			"an age shorter than Apple's retries", func(cfg *applehook.Config) { cfg.MaxAge = 7 * day },
			[]string{"Config.MaxAge is 168h0m0s", "181h0m0s"},
		},
		{"a negative deadline", func(cfg *applehook.Config) { cfg.Deadline = -1 }, []string{"Config.Deadline"}},
		{"DropSandbox in the sandbox", func(cfg *applehook.Config) { cfg.Environment, cfg.DropSandbox = applehook.Sandbox, true }, []string{"Config.DropSandbox has no effect"}},
		{
			"all errors at once", func(cfg *applehook.Config) { cfg.BundleID, cfg.AppAppleID = "", 0 },
			[]string{"Config.BundleID", "Config.AppAppleID"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := applehook.Config{BundleID: bundle, AppAppleID: appID, Environment: applehook.Production}
			tt.change(&cfg)
			v, err := applehook.New(cfg)
			if err == nil || v != nil {
				t.Fatal("accepted")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\ndoes not have %q", err, want)
				}
			}
		})
	}
	t.Run("a short age in the sandbox, without an app ID", func(t *testing.T) {
		if _, err := applehook.New(applehook.Config{
			BundleID: bundle, Environment: applehook.Sandbox,
			MaxAge: time.Hour,
		}); err != nil {
			t.Error(err)
		}
	})
}

// The fingerprint is the one that Apple publishes.
func TestAppleRoots(t *testing.T) {
	roots, err := applehook.AppleRoots()
	if err != nil || len(roots) != 1 {
		t.Fatal(roots, err)
	}
	sum := sha256.Sum256(roots[0].Raw)
	if got := strings.ToUpper(hex.EncodeToString(sum[:])); got != "63343ABFB89A6A03EBB57E9B3F5FA7BE7C4F5C756F3017B3A8C488C3653E9179" {
		t.Errorf("SHA-256 %s", got)
	}
	if roots[0].Subject.CommonName != "Apple Root CA - G3" || roots[0].CheckSignatureFrom(roots[0]) != nil {
		t.Errorf("subject %v", roots[0].Subject)
	}
}

func TestSource(t *testing.T) {
	c := newChain(t)
	want := webhook.Source{
		Name: "apple", Horizon: 181 * day, Deadline: 10 * time.Second, MaxBody: 256 << 10,
		GiveUpAfter: 120 * time.Hour,
	}
	if diff := cmp.Diff(want, newVerifier(t, c).Source()); diff != "" {
		t.Errorf("production (-want +got):\n%s", diff)
	}
	t.Run("E20: only the last of Apple's attempts is after GiveUpAfter", func(t *testing.T) {
		attempts := []time.Duration{0, 1, 13, 37, 85, 157} // hours
		for i, at := range attempts {
			if last := at*time.Hour > want.GiveUpAfter; last != (i == len(attempts)-1) {
				t.Errorf("attempt %d after %d hours: last is %v", i+1, at, last)
			}
		}
	})
	sandbox := newVerifier(t, c, func(cfg *applehook.Config) {
		cfg.Environment, cfg.Deadline = applehook.Sandbox, time.Second
	}).Source()
	want = webhook.Source{Name: "apple", Horizon: 31 * day, Deadline: time.Second, MaxBody: 256 << 10, GiveUpAfter: 1}
	if diff := cmp.Diff(want, sandbox); diff != "" {
		t.Errorf("sandbox: each attempt is the last (-want +got):\n%s", diff)
	}
}

// noResults is a Store that keeps no results, so that it cannot keep a checkpoint.
type noResults struct{ dedup.Store[*deduptest.Tx] }

func TestNewBackfillRefuses(t *testing.T) {
	pemOf := func(key any) []byte {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		change func(*backfillConfig)
		want   string // in the error
	}{
		{"no name", func(cfg *backfillConfig) { cfg.Name = "" }, "BackfillConfig.Name is required"},
		{"a long name", func(cfg *backfillConfig) { cfg.Name = strings.Repeat("x", 255) }, "BackfillConfig.Name"},
		{"no verifier", func(cfg *backfillConfig) { cfg.Verifier = nil }, "BackfillConfig.Verifier is required"},
		{"no processor", func(cfg *backfillConfig) { cfg.Processor = nil }, "BackfillConfig.Processor is required"},
		{
			"a nil processor", func(cfg *backfillConfig) { cfg.Processor = (*consumer.Consumer[*deduptest.Tx])(nil) },
			"BackfillConfig.Processor is required",
		},
		{
			"a short window", func(cfg *backfillConfig) { cfg.Processor = shortWindow{} },
			"BackfillConfig.Processor forgets keys after 4319h0m0s",
		},
		{"no store", func(cfg *backfillConfig) { cfg.Store = nil }, "BackfillConfig.Store is required"},
		{"a store without results", func(cfg *backfillConfig) { cfg.Store = noResults{cfg.Store} }, "ResultStore"},
		{"no start", func(cfg *backfillConfig) { cfg.Since = time.Time{} }, "BackfillConfig.Since is required"},
		{"no issuer", func(cfg *backfillConfig) { cfg.IssuerID = "" }, "BackfillConfig.IssuerID is required"},
		{"no key ID", func(cfg *backfillConfig) { cfg.KeyID = "" }, "BackfillConfig.KeyID is required"},
		{
			"no key", func(cfg *backfillConfig) { cfg.PrivateKey = nil },
			"BackfillConfig.PrivateKey: it is not PEM: use the content of the .p8 file",
		},
		{"a key that is not PKCS #8", func(cfg *backfillConfig) {
			cfg.PrivateKey = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("hunter2")})
		}, "BackfillConfig.PrivateKey: it is not a PKCS #8 key"},
		{
			"an Ed25519 key", func(cfg *backfillConfig) { cfg.PrivateKey = pemOf(ed) },
			"BackfillConfig.PrivateKey: it is not an ECDSA key on P-256",
		},
		{
			"a P-384 key", func(cfg *backfillConfig) { cfg.PrivateKey = pemOf(p384) },
			"BackfillConfig.PrivateKey: it is not an ECDSA key on P-256",
		},
		{"a negative interval", func(cfg *backfillConfig) { cfg.Interval = -1 }, "BackfillConfig.Interval"},
		{
			"an interval without a pause", func(cfg *backfillConfig) { cfg.Interval = time.Second - 1 },
			"BackfillConfig.Interval",
		},
		{
			"a short overlap", func(cfg *backfillConfig) { cfg.Overlap = time.Minute },
			"BackfillConfig.Overlap is 1m0s: want at least 10m0s",
		},
		{"a plain URL", func(cfg *backfillConfig) { cfg.URL = "http://api.example" }, "BackfillConfig.URL"},
		{"a URL with a user", func(cfg *backfillConfig) { cfg.URL = "https://x@api.example" }, "BackfillConfig.URL"},
		{
			"a URL with a path", func(cfg *backfillConfig) { cfg.URL = "https://api.example/inApps" },
			"BackfillConfig.URL",
		},
		{"not a URL", func(cfg *backfillConfig) { cfg.URL = "api" }, "BackfillConfig.URL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := newWorld(t).config(consumertest.NewStore())
			tt.change(&cfg)
			b, err := applehook.NewBackfill(cfg)
			if err == nil || b != nil {
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%v\nwant …%s…", err, tt.want)
			}
		})
	}
	for _, url := range []string{
		"", "https://api.example", "http://127.0.0.1:8080", "http://[::1]:8080",
		"http://localhost:8080",
	} {
		cfg := newWorld(t).config(consumertest.NewStore())
		cfg.URL = url
		if _, err := applehook.NewBackfill(cfg); err != nil {
			t.Errorf("%q: %v", url, err)
		}
	}
}

// shortWindow forgets keys before Apple's history ends.
type shortWindow struct{}

func (shortWindow) ProcessBatch(context.Context, []*consumer.Message) []error { return nil }
func (shortWindow) Window() time.Duration                                     { return 180*day - time.Hour }

func TestDecodeRefuses(t *testing.T) {
	for name, payload := range map[string]string{
		"the body of a request":           `{"signedPayload":"x"}`,
		"another version":                 `{"applehook":2,"notification":{}}`,
		"not JSON":                        `hello`,
		"empty":                           ``,
		"a notification that is a number": `{"applehook":1,"notification":5}`,
		"a transaction that is an array":  `{"applehook":1,"notification":{},"transaction":[]}`,
	} {
		t.Run(name, func(t *testing.T) {
			if n, err := applehook.Decode(&consumer.Message{Payload: []byte(payload)}); n != nil ||
				!consumer.IsPermanent(err) {
				t.Error(n, err)
			}
		})
	}
	t.Run("the bytes that Apple signed are kept", func(t *testing.T) {
		c := newChain(t)
		raw := strings.Replace(string(toJSON(t, notification())), "{", "{ \"html\": \"<&>\u2028\", ", 1)
		event, err := verify(t, newVerifier(t, c), body(t, c.sign(t, raw)))
		if err != nil {
			t.Fatal(err)
		}
		if n, err := applehook.Decode(&event.Message); err != nil || !bytes.Equal(n.Raw, []byte(raw)) {
			t.Errorf("%s, %v", n.Raw, err)
		}
	})
}
