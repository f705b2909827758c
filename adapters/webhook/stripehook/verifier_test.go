package stripehook_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/stripehook"
)

func TestSignatureHeader(t *testing.T) {
	v, body := newVerifier(t, stripehook.Config{}), paid().Body(nil)
	good := stripehook.Sign(body, now, liveSecret)
	stamp, signature, _ := strings.Cut(good, ",v1=")
	other := strings.Repeat("ab", 32)
	for _, tt := range []struct {
		name    string
		headers []string
		want    webhook.Refusal // empty: accepted
	}{
		{"as Stripe sends it", []string{good}, ""},
		{"several signatures, ours last", []string{stamp + ",v1=" + other + ",v1=" + signature}, ""},
		{"several signatures, ours first", []string{good + ",v1=" + other}, ""},
		{"other schemes beside it", []string{stamp + ",v0=" + other + ",v2=x,v1=" + signature + ",v0="}, ""},
		{"v1 that cannot be decoded beside it", []string{stamp + ",v1=zz,v1=,v1=abcd,v1=" + signature}, ""},
		{"the time last", []string{"v1=" + signature + "," + stamp}, ""},

		{"case 47: missing", nil, webhook.Unsigned},
		{"case 47: empty", []string{""}, webhook.Unsigned},
		{"case 47: twice", []string{good, good}, webhook.Unsigned},
		{"case 47: no time", []string{"v1=" + signature}, webhook.Unsigned},
		{"case 47: two times, the same", []string{stamp + "," + good}, webhook.Unsigned},
		{"case 47: two times", []string{good + ",t=1"}, webhook.Unsigned},
		{"case 47: empty time", []string{"t=,v1=" + signature}, webhook.Unsigned},
		{"case 47: a sign", []string{"t=+" + stamp[2:] + ",v1=" + signature}, webhook.Unsigned},
		{"case 47: a negative time", []string{"t=-1,v1=" + signature}, webhook.Unsigned},
		{"case 47: a time in hexadecimal", []string{"t=0x10,v1=" + signature}, webhook.Unsigned},
		{"case 47: 13 digits", []string{"t=0" + "000" + stamp[2:] + ",v1=" + signature}, webhook.Unsigned},
		{"case 47: two equal signs", []string{stamp + ",v1==" + signature}, webhook.Unsigned},
		{"case 47: no equal sign", []string{good + ",v1"}, webhook.Unsigned},
		{"case 47: an empty element", []string{good + ","}, webhook.Unsigned},
		{"case 47: a long header", []string{good + strings.Repeat(",v1="+other, 100)}, webhook.Unsigned},

		{"case 50: v0 alone", []string{stamp + ",v0=" + signature}, webhook.Unsigned},
		{"case 50: another case of the scheme", []string{stamp + ",V1=" + signature}, webhook.Unsigned},

		{"case 51: an empty signature", []string{stamp + ",v1="}, webhook.BadSignature},
		{"case 51: a prefix", []string{good[:len(good)-2]}, webhook.BadSignature},
		{"case 51: one digit less", []string{good[:len(good)-1]}, webhook.BadSignature},
		{"case 51: longer", []string{good + "00"}, webhook.BadSignature},
		{"case 51: base64", []string{stamp + ",v1=q83vEjRWeJA"}, webhook.BadSignature},
		{"another signature", []string{stamp + ",v1=" + other}, webhook.BadSignature},
		{"a secret that is not configured", []string{stripehook.Sign(body, now, newSecret)}, webhook.BadSignature},
		{"case 55: another time", []string{"t=" + fmt.Sprint(now.Unix()+1) + ",v1=" + signature}, webhook.BadSignature},
		{"case 55: the time in other digits", []string{"t=0" + stamp[2:] + ",v1=" + signature}, webhook.BadSignature},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := delivery(body, tt.headers...); tt.want == "" {
				accepted(t, v, d)
			} else {
				refused(t, v, d, tt.want)
			}
		})
	}
	t.Run("case 51: each digit counts", func(t *testing.T) {
		for i := range signature {
			wrong := []byte(signature)
			wrong[i] ^= 1 // another digit: 0 and 1, a and `
			refused(t, v, delivery(body, stamp+",v1="+string(wrong)), webhook.BadSignature)
		}
	})
	t.Run("case 55: a digit moved from the body to the time", func(t *testing.T) {
		digits := stamp[len("t="):]
		moved := append([]byte(digits[9:]+"."), body...)
		refused(t, v, delivery(moved, "t="+digits[:9]+",v1="+signature), webhook.BadSignature)
	})
}

func TestBodyIsSigned(t *testing.T) {
	v, body := newVerifier(t, stripehook.Config{}), paid().Body(nil)
	header := stripehook.Sign(body, now, liveSecret)
	var indented bytes.Buffer
	if err := json.Indent(&indented, body, "", "  "); err != nil {
		t.Fatal(err)
	}
	for name, altered := range map[string][]byte{
		"case 49: a line break at the end": append(bytes.Clone(body), '\n'),
		"case 49: a byte order mark":       append([]byte("\xef\xbb\xbf"), body...),
		"case 49: other indentation":       indented.Bytes(),
		"case 49: empty":                   nil,
		"another amount":                   bytes.Replace(body, []byte("in_1"), []byte("in_2"), 1),
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, v, delivery(altered, header), webhook.BadSignature)
			_, err := v.Verify(t.Context(), delivery(altered, header))
			if !strings.Contains(err.Error(), "raw body") {
				t.Errorf("%v: want a hint that the raw body is signed", err)
			}
		})
	}
	t.Run("signed JSON is read after the signature", func(t *testing.T) {
		refused(t, v, delivery([]byte("not JSON"), header), webhook.BadSignature)
		refused(t, v, signed([]byte("not JSON"), liveSecret), webhook.Malformed)
	})
}

func TestTime(t *testing.T) {
	body := paid().Body(nil)
	sign := func(unix string) string {
		// Sign takes a time.Time, which cannot express each of these numbers.
		return "t=" + unix + ",v1=" + hmacHex(liveSecret, unix+"."+string(body))
	}
	at := func(d time.Duration) string { return sign(fmt.Sprint(now.Add(d).Unix())) }
	for _, tt := range []struct {
		name   string
		cfg    stripehook.Config
		header string
		want   webhook.Refusal // empty: accepted
	}{
		{"case 48: now", stripehook.Config{}, at(0), ""},
		{"case 48: exactly at the limit, old", stripehook.Config{}, at(-5 * time.Minute), ""},
		{"case 48: exactly at the limit, new", stripehook.Config{}, at(5 * time.Minute), ""},
		{"case 48: too old", stripehook.Config{}, at(-5*time.Minute - time.Second), webhook.BadTime},
		{"case 48: too new", stripehook.Config{}, at(5*time.Minute + time.Second), webhook.BadTime},
		{"a tolerance of one's own", stripehook.Config{Tolerance: time.Hour}, at(-time.Hour), ""},
		{"beyond it", stripehook.Config{Tolerance: time.Hour}, at(-time.Hour - time.Second), webhook.BadTime},
		{"a short one", stripehook.Config{Tolerance: time.Second}, at(-2 * time.Second), webhook.BadTime},
		{"fact 4: the far future", stripehook.Config{}, at(100 * 365 * 24 * time.Hour), webhook.BadTime},
		{"E22: 2^62 has too many digits", stripehook.Config{}, sign("4611686018427387904"), webhook.Unsigned},
		{"E22: the largest time, whose distance overflows", stripehook.Config{}, sign("999999999999"), webhook.BadTime},
		{"E22: the smallest", stripehook.Config{}, sign("0"), webhook.BadTime},
		{"leading zeros are signed as they are", stripehook.Config{}, sign("00" + fmt.Sprint(now.Unix())), ""},
		{"any age, old", stripehook.Config{InsecureAcceptAnyAge: true}, sign("1"), ""},
		{"any age, new", stripehook.Config{InsecureAcceptAnyAge: true}, sign("999999999999"), ""},
		{"any age, another signature", stripehook.Config{InsecureAcceptAnyAge: true}, "t=1,v1=" + strings.Repeat("ab",
			32), webhook.BadSignature},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if v, d := newVerifier(t, tt.cfg), delivery(body, tt.header); tt.want == "" {
				accepted(t, v, d)
			} else {
				refused(t, v, d, tt.want)
			}
		})
	}
	t.Run("a Delivery without a time is refused", func(t *testing.T) {
		d := signed(body, liveSecret)
		d.Time = time.Time{}
		refused(t, newVerifier(t, stripehook.Config{}), d, webhook.BadTime)
	})
	t.Run("a bad signature is not called a bad time", func(t *testing.T) {
		refused(t, newVerifier(t, stripehook.Config{}), delivery(body, "t=1,v1="+strings.Repeat("ab", 32)),
			webhook.BadSignature)
	})
}

func TestSecretsAreRolled(t *testing.T) {
	body := paid().Body(nil)
	before := newVerifier(t, stripehook.Config{})
	during := newVerifier(t, stripehook.Config{Secrets: []stripehook.Secret{{Value: newSecret, Mode: stripehook.Live}, liveSecrets[0]}})
	after := newVerifier(t, stripehook.Config{Secrets: []stripehook.Secret{{Value: newSecret, Mode: stripehook.Live}}})
	old, both, new := signed(body, liveSecret), signed(body, liveSecret, newSecret), signed(body, newSecret)
	t.Run("case 53: the receiver has both secrets", func(t *testing.T) {
		for _, d := range []*webhook.Delivery{old, both, new} {
			accepted(t, during, d)
		}
	})
	t.Run("case 53: Stripe signs with both secrets", func(t *testing.T) {
		accepted(t, before, both)
		accepted(t, after, both)
	})
	t.Run("case 53: the old secret is removed", func(t *testing.T) {
		refused(t, after, old, webhook.BadSignature)
		accepted(t, after, new)
	})
	t.Run("the caller's slice may change", func(t *testing.T) {
		secrets := []stripehook.Secret{{Value: liveSecret, Mode: stripehook.Live}}
		v := newVerifier(t, stripehook.Config{Secrets: secrets})
		secrets[0].Value = newSecret
		accepted(t, v, old)
		refused(t, v, new, webhook.BadSignature)
	})
}

// R8: a secret is bound to its mode.
func TestModes(t *testing.T) {
	live, test := paid(), paid()
	test.Livemode = false
	connect := stripehook.Secret{Value: connectSecret, Mode: stripehook.Live, Connect: true}
	sandbox := stripehook.Secret{Value: testSecret, Mode: stripehook.Test}
	all := []stripehook.Secret{liveSecrets[0], connect, sandbox}
	for _, tt := range []struct {
		name    string
		event   stripehook.Event
		secrets []string // that signed it
		dropped bool
		want    webhook.Refusal // empty: accepted
	}{
		{"live", live, []string{liveSecret}, false, ""},
		{"test", test, []string{testSecret}, false, ""},
		{"live, from a Connect endpoint", live, []string{connectSecret}, false, ""},
		{"test, from a live endpoint", test, []string{liveSecret}, false, webhook.WrongApp},
		{"live, from a test endpoint", live, []string{testSecret}, false, webhook.WrongApp},
		{"test, from a live Connect endpoint", test, []string{connectSecret}, true, ""},
		{"test, signed by a live and a test endpoint", test, []string{liveSecret, testSecret}, false, ""},
		{"test, signed by a live Connect and a test endpoint", test, []string{connectSecret, testSecret}, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, d := newVerifier(t, stripehook.Config{Secrets: all}), signed(tt.event.Body(nil), tt.secrets...)
			if tt.want != "" {
				refused(t, v, d, tt.want)
				return
			}
			got := accepted(t, v, d)
			if (got.Drop != "") != tt.dropped {
				t.Errorf("Drop is %q, want dropped %v", got.Drop, tt.dropped)
			}
			if want := map[bool]string{true: "stripe/live", false: "stripe/test"}[tt.event.Livemode]; got.Message.Tenant != want {
				t.Errorf("tenant %q, want %q", got.Message.Tenant, want)
			}
		})
	}
}

func TestUnknownType(t *testing.T) {
	t.Run("case 70: an unknown type is passed on", func(t *testing.T) {
		e := paid()
		e.Type = "of.the.future"
		if got := accepted(t, newVerifier(t, stripehook.Config{}),
			signed(e.Body(nil), liveSecret)); got.Message.Topic != e.Type || got.Drop != "" {
			t.Errorf("topic %q, drop %q", got.Message.Topic, got.Drop)
		}
	})
}

func TestSource(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  stripehook.Config
		want webhook.Source
	}{
		{"E20: live", stripehook.Config{}, webhook.Source{Deadline: 10 * time.Second, GiveUpAfter: 36 * time.Hour}},
		{
			"E20: test",
			stripehook.Config{Secrets: []stripehook.Secret{{Value: testSecret, Mode: stripehook.Test}}},
			webhook.Source{Deadline: 10 * time.Second, GiveUpAfter: time.Hour},
		},
		{"E20: both", stripehook.Config{Secrets: []stripehook.Secret{{Value: testSecret, Mode: stripehook.Test}, liveSecrets[0]}}, webhook.Source{Deadline: 10 * time.Second, GiveUpAfter: 36 * time.Hour}},
		{
			"configured",
			stripehook.Config{Deadline: time.Minute, GiveUpAfter: 2 * time.Hour},
			webhook.Source{Deadline: time.Minute, GiveUpAfter: 2 * time.Hour},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := newVerifier(t, tt.cfg).Source()
			if got.Name != "stripe" || got.Deadline != tt.want.Deadline || got.GiveUpAfter != tt.want.GiveUpAfter ||
				got.Reply.Status != 0 {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
			if got.Horizon < 31*24*time.Hour { // fact 6
				t.Errorf("horizon %v: Stripe lists events for 30 days", got.Horizon)
			}
			// Attempts at doubling intervals: the last one within 3 days must find the event old enough to be parked.
			for first := time.Minute; first < 2*time.Minute; first += time.Second {
				last := first
				for last*2 <= 72*time.Hour {
					last *= 2
				}
				if last < got.GiveUpAfter {
					t.Fatalf("an event is given up after %v, and the last attempt is at %v", got.GiveUpAfter, last)
				}
			}
		})
	}
}

func TestSign(t *testing.T) {
	body := paid().Body(map[string]any{"id": "in_1", "total": 5})
	accepted(t, newVerifier(t, stripehook.Config{}), delivery(body, stripehook.Sign(body, now, liveSecret, newSecret)))
	// What Sign makes is the HMAC over the time and the body, with the whole secret as its key.
	want := "t=1700000000,v1=" + hmacHex(liveSecret, "1700000000."+string(body))
	if got := stripehook.Sign(body, time.Unix(1700000000, 999), liveSecret); got != want {
		t.Errorf("Sign returns %s, want %s", got, want)
	}
	if _, err := hex.DecodeString(strings.TrimPrefix(want, "t=1700000000,v1=")); err != nil {
		t.Error(err)
	}
}
