package pubsubhook_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/pubsubhook"
	"github.com/txonce/txonce/consumer"
)

func TestVerify(t *testing.T) {
	n := &network{}
	v := newVerifier(t, n)
	events, err := v.Verify(t.Context(), push(t))
	if err != nil {
		t.Fatal(err)
	}
	want := []webhook.Event{{Message: consumer.Message{
		ID: "136969346945", Tenant: "pubsub/" + play, Topic: play, OrderingKey: "k",
		Payload: []byte(`{"packageName":"com.example.app"}`),
		Headers: map[string]string{"pubsub-attribute-a": "b"}, Time: now,
	}}}
	if diff := cmp.Diff(want, events, cmpopts.IgnoreFields(consumer.Message{}, "Fingerprint")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}

	// Pub/Sub counts the attempts in the body.
	again := push(t)
	again.Body = []byte(strings.Replace(string(again.Body), `{"message":`, `{"deliveryAttempt":5,"message":`, 1))
	repeated, err := v.Verify(t.Context(), again)
	if diff := cmp.Diff(events, repeated); diff != "" || err != nil {
		t.Errorf("E18: %v (-first +again)\n%s", err, diff)
	}
	other := push(t)
	other.Body = []byte(strings.Replace(string(other.Body), `"a":"b"`, `"a":"c"`, 1))
	if changed, err := v.Verify(t.Context(), other); err != nil ||
		*changed[0].Message.Fingerprint == *events[0].Message.Fingerprint {
		t.Errorf("other content has the same fingerprint: %v", err)
	}
	if got := n.requests.Load(); got != 1 {
		t.Errorf("%d requests for keys, want 1", got)
	}
	source := webhook.Source{
		Name: "pubsub", Horizon: 32 * 24 * time.Hour, Deadline: 10 * time.Second,
		GiveUpAfter: 6 * 24 * time.Hour, MaxBody: 16 << 20,
	}
	if diff := cmp.Diff(source, v.Source()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestClaims(t *testing.T) {
	n := &network{}
	v := newVerifier(t, n)
	refused(t, v, push(t), "")
	for _, test := range []struct {
		name string
		edit map[string]any
		want webhook.Refusal
	}{
		{"as they must be", nil, ""},
		{"Google's other issuer", map[string]any{"iss": "accounts.google.com"}, ""},
		{"another issuer", map[string]any{"iss": "https://accounts.google.com.evil.example"}, webhook.BadSignature},
		{"no issuer", map[string]any{"iss": nil}, webhook.BadSignature},
		{"case 62: another audience", map[string]any{"aud": "https://hooks.example.com/other"}, webhook.WrongApp},
		{"case 62: the audience in other case", map[string]any{"aud": strings.ToUpper(audience)}, webhook.WrongApp},
		{"case 62: no audience", map[string]any{"aud": nil}, webhook.WrongApp},
		{"case 62: several audiences", map[string]any{"aud": []string{"x", audience}}, webhook.WrongApp},
		{"case 62: another account", map[string]any{"email": "evil@other.iam.gserviceaccount.com"}, webhook.WrongApp},
		{"case 62: no account", map[string]any{"email": nil}, webhook.WrongApp},
		{"case 62: not verified", map[string]any{"email_verified": false}, webhook.WrongApp},
		{"case 62: verified as a text", map[string]any{"email_verified": "true"}, webhook.WrongApp},
		{"case 62: verification unknown", map[string]any{"email_verified": nil}, webhook.WrongApp},
		{"case 48: expired as long ago as allowed", map[string]any{"exp": now.Add(-5 * time.Minute).Unix()}, ""},
		{"case 48: expired", map[string]any{"exp": now.Add(-5*time.Minute - time.Second).Unix()}, webhook.BadTime},
		{"case 48: no end", map[string]any{"exp": nil}, webhook.BadTime},
		{"case 48: an end as text", map[string]any{"exp": "4102444800"}, webhook.BadTime},
		{"case 48: an end as fraction", map[string]any{"exp": 4102444800.5}, webhook.BadTime},
		{"E22: 1<<62", map[string]any{"exp": int64(1) << 62}, webhook.BadTime},
		{"case 48: issued as far ahead as allowed", map[string]any{"iat": now.Add(5 * time.Minute).Unix()}, ""},
		{
			"case 48: issued in the future",
			map[string]any{"iat": now.Add(5*time.Minute + time.Second).Unix()},
			webhook.BadTime,
		},
		{"case 48: issued unknown", map[string]any{"iat": nil}, webhook.BadTime},
		{"case 48: valid from now", map[string]any{"nbf": now.Unix()}, ""},
		{"case 48: not valid yet", map[string]any{"nbf": now.Add(time.Hour).Unix()}, webhook.BadTime},
	} {
		t.Run(test.name, func(t *testing.T) {
			token, err := sharedSigner().Token(claims(test.edit))
			if err != nil {
				t.Fatal(err)
			}
			d := push(t)
			d.Header.Set("Authorization", "Bearer "+token)
			refused(t, v, d, test.want)
		})
	}
	if got := n.requests.Load(); got != 1 {
		t.Errorf("%d requests for keys, want 1", got)
	}
}

func TestTokenIsRefused(t *testing.T) {
	key := newKey(t, 2048)
	n := &network{respond: func(*http.Request) (*http.Response, error) {
		return response(200, jwks(t, jwk("k1", &key.PublicKey))), nil
	}}
	v := newVerifier(t, n)
	const header = `{"alg":"RS256","kid":"k1","typ":"JWT"}`
	good := jwt(t, key, header, claims(nil))
	parts := strings.Split(good, ".")
	for _, test := range []struct {
		name  string
		token []string
		want  webhook.Refusal
	}{
		{"as it must be", []string{good}, ""},
		{"case 47: none", nil, webhook.Unsigned},
		{"case 47: empty", []string{""}, webhook.Unsigned},
		{"case 47: two", []string{good, good}, webhook.Unsigned},
		{"basic authentication", []string{"Basic " + good[7:]}, webhook.Unsigned},
		{"no scheme", []string{good[7:]}, webhook.Unsigned},
		{"case 50: alg none", []string{jwt(t, key, `{"alg":"none","kid":"k1"}`, claims(nil))}, webhook.Unsigned},
		{"case 50: no signature", []string{parts[0] + "." + parts[1] + "."}, webhook.BadSignature},
		{"case 50: alg HS256", []string{jwt(t, key, `{"alg":"HS256","kid":"k1"}`, claims(nil))}, webhook.Unsigned},
		{"case 50: alg PS256", []string{jwt(t, key, `{"alg":"PS256","kid":"k1"}`, claims(nil))}, webhook.Unsigned},
		{
			"case 50: alg in other case",
			[]string{jwt(t, key, `{"alg":"rs256","kid":"k1"}`, claims(nil))},
			webhook.Unsigned,
		},
		{"case 50: no alg", []string{jwt(t, key, `{"kid":"k1"}`, claims(nil))}, webhook.Unsigned},
		{
			"case 50: alg twice",
			[]string{jwt(t, key, `{"alg":"RS256","Alg":"none","kid":"k1"}`, claims(nil))},
			webhook.Unsigned,
		},
		{
			"case 50: crit",
			[]string{jwt(t, key, `{"alg":"RS256","kid":"k1","crit":["b64"]}`, claims(nil))},
			webhook.Unsigned,
		},
		{"no kid", []string{jwt(t, key, `{"alg":"RS256"}`, claims(nil))}, webhook.Unsigned},
		{"an unknown kid", []string{jwt(t, key, `{"alg":"RS256","kid":"k2"}`, claims(nil))}, webhook.BadSignature},
		{
			"case 50: a key of the attacker",
			[]string{jwt(t, newKey(t, 2048), header, claims(nil))},
			webhook.BadSignature,
		},
		{"case 51: two parts", []string{parts[0] + "." + parts[1]}, webhook.Unsigned},
		{"case 51: four parts", []string{good + ".e30"}, webhook.Unsigned},
		{"case 51: padding", []string{good + "="}, webhook.Unsigned},
		{"case 51: a shorter signature", []string{good[:len(good)-6]}, webhook.BadSignature},
		{"other claims", []string{parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"aud":"x"}`)) + "." + parts[2]}, webhook.BadSignature},
		{"claims twice", []string{parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"aud":"x","aud":"y"}`)) + "." + parts[2]}, webhook.Unsigned},
		{"no JSON", []string{parts[0] + ".AAAA." + parts[2]}, webhook.Unsigned},
		{"very long", []string{good + strings.Repeat("A", 4096)}, webhook.Unsigned},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := push(t)
			d.Header["Authorization"] = test.token
			refused(t, v, d, test.want)
		})
	}
}

func TestBodyIsRefused(t *testing.T) {
	v := newVerifier(t, &network{})
	for _, test := range []struct {
		name, old, replacement string
		want                   webhook.Refusal
	}{
		{"another subscription", play, play + "2", webhook.WrongApp},
		{"no subscription", `"subscription"`, `"other"`, webhook.Malformed},
		{"no message", `"message":`, `"other":`, webhook.Malformed},
		{"no id", `"messageId"`, `"other"`, webhook.Malformed},
		{"an empty id", `"messageId":"136969346945"`, `"messageId":""`, webhook.Malformed},
		{"two ids", `"message_id":"136969346945"`, `"message_id":"2"`, webhook.Malformed},
		{"case 71: one name twice", `"message_id"`, `"messageid"`, webhook.Malformed},
		{"no time", `"publishTime"`, `"other"`, webhook.Malformed},
		{"a bad time", `"publishTime":"2`, `"publishTime":"x`, webhook.Malformed},
		{"no base64", `"data":"ey`, `"data":"!!`, webhook.Malformed},
		{"data as an object", `"data":"`, `"data":{},"other":"`, webhook.Malformed},
		{"attributes of numbers", `"a":"b"`, `"a":1`, webhook.Malformed},
		{"not JSON", `{"message"`, `"message"`, webhook.Malformed},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := push(t)
			body := strings.Replace(string(d.Body), test.old, test.replacement, 1)
			if body == string(d.Body) {
				t.Fatalf("%s is not in %s", test.old, body)
			}
			d.Body = []byte(body)
			refused(t, v, d, test.want)
		})
	}
	d := push(t)
	d.Body = []byte(strings.Replace(string(d.Body), `"publishTime":"2000`, `"publishTime":"2001`, 1))
	if _, err := v.Verify(t.Context(), d); err == nil || webhook.RefusalOf(err) != "" {
		t.Errorf("a time of the future: %v, want an error that is no refusal", err)
	}
}

func TestNew(t *testing.T) {
	for name, edit := range map[string]func(*pubsubhook.Config){
		"Subscriptions is required":   func(c *pubsubhook.Config) { c.Subscriptions = nil },
		`Subscriptions[0] is "play"`:  func(c *pubsubhook.Config) { c.Subscriptions = []string{"play"} },
		"Audiences is required":       func(c *pubsubhook.Config) { c.Audiences = nil },
		"Audiences[1] is empty":       func(c *pubsubhook.Config) { c.Audiences = []string{audience, ""} },
		"ServiceAccounts is required": func(c *pubsubhook.Config) { c.ServiceAccounts = nil },
		`ServiceAccounts[0] is "me"`:  func(c *pubsubhook.Config) { c.ServiceAccounts = []string{"me"} },
		"Tolerance is -1ns":           func(c *pubsubhook.Config) { c.Tolerance = -1 },
		"Deadline is -1ns":            func(c *pubsubhook.Config) { c.Deadline = -1 },
		"GiveUpAfter is 144h0m0s":     func(c *pubsubhook.Config) { c.Horizon = time.Hour },
	} {
		cfg := config()
		edit(&cfg)
		if _, err := pubsubhook.New(cfg); err == nil || !strings.Contains(err.Error(), "pubsubhook: Config."+name) {
			t.Errorf("got %v, want %s", err, name)
		}
	}
}
