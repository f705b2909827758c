package applehook_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha512"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/webhook"
	"github.com/txonce/txonce/adapters/webhook/applehook"
	"github.com/txonce/txonce/consumer"
)

// fixedChain has the same keys and serial numbers in each process, so that the seeds of the process that coordinates a
// fuzz run verify in those that fuzz.
func fixedChain(t testing.TB) chain {
	t.Helper()
	key := func(name string, curve elliptic.Curve) crypto.Signer {
		hash := sha512.Sum384([]byte(name))
		key, err := ecdsa.ParseRawPrivateKey(curve, hash[:curve.Params().BitSize/8])
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	serial = 1000
	root := issue(t, nil, options{name: "root", ca: true, signer: key("root", elliptic.P384())})
	return newChainUnder(t, root, withOCSP, func(leaf, intermediate *options) {
		leaf.signer, intermediate.signer = key("leaf", elliptic.P256()), key("intermediate", elliptic.P384())
	})
}

// The notification of the seeds, without signed parts, whose bytes differ in each process.
func seedMessage(t testing.TB, v *applehook.Verifier, c chain) consumer.Message {
	t.Helper()
	event, err := verify(t, v, body(t, c.sign(t, notification())))
	if err != nil {
		t.Fatal(err)
	}
	return event.Message
}

// Whatever the bytes: no panic, and only what was signed is accepted.
func FuzzVerify(f *testing.F) {
	c := fixedChain(f)
	v := newVerifier(f, c)
	good := c.sign(f, notification())
	f.Add(body(f, good))
	f.Add([]byte(`{"signedPayload":"` + good + `","more":[1,{"x":null}]}`))
	f.Add([]byte(`{"signedPayload":"a.b.c"}`))
	f.Add([]byte(`{"signedPayload":"` + strings.Repeat(good[:100], 3) + `"}`))
	f.Add(body(f, signJWS(f, m{"alg": "none", "x5c": c.x5c()}, notification(), c.leaf.key)))
	f.Add(body(f, signJWS(f, m{"alg": "ES256", "x5c": []string{}}, notification(), c.leaf.key)))
	want := seedMessage(f, v, c)
	f.Fuzz(func(t *testing.T, b []byte) {
		event, err := verify(t, v, b)
		if err != nil {
			if webhook.RefusalOf(err) == "" {
				t.Fatalf("an error that may pass: %v", err)
			}
			return
		}
		if diff := cmp.Diff(want, event.Message); diff != "" {
			t.Errorf("a mutation was accepted (-want +got):\n%s", diff)
		}
	})
}

// A notification with one byte changed, in the signed whole or in its signed parts, is never accepted.
func FuzzVerifyMutation(f *testing.F) {
	c := fixedChain(f)
	v := newVerifier(f, c)
	good := []byte(c.sign(f, full(f, c)))
	inner := []byte(c.sign(f, transaction()))
	for i := 0; i < len(good); i += 97 {
		f.Add(uint(i), byte(1), false)
	}
	for i := 0; i < len(inner); i += 97 {
		f.Add(uint(i), byte(32), true)
	}
	f.Fuzz(func(t *testing.T, at uint, mask byte, nested bool) {
		if mask == 0 {
			return
		}
		whole := bytes.Clone(good)
		if nested { // signed as a whole, so that only the part's own signature protects it
			part := bytes.Clone(inner)
			part[at%uint(len(part))] ^= mask
			whole = []byte(c.sign(t, with(notification(), m{"data": with(data(), m{"signedTransactionInfo": string(part)})})))
		} else {
			whole[at%uint(len(whole))] ^= mask
		}
		if event, err := verify(t, v, append(append([]byte(`{"signedPayload":"`), whole...), `"}`...)); err == nil {
			t.Errorf("accepted: %+v", event)
		}
	})
}

func FuzzParseJWS(f *testing.F) {
	c := fixedChain(f)
	f.Add(c.sign(f, notification()))
	f.Add("e30.e30.e30")
	f.Add("..")
	f.Add(strings.Repeat(".", 1<<10))
	f.Fuzz(func(t *testing.T, compact string) {
		signed, payload, err := applehook.ParseJWS(compact)
		if err != nil {
			return
		}
		parts := strings.Split(compact, ".")
		if signed != parts[0]+"."+parts[1] || b64url(payload) != parts[1] {
			t.Errorf("it says that %q is signed, with the payload %q", signed, payload)
		}
	})
}

// An object that is accepted reads the same with encoding/json, whatever the case of its names.
func FuzzParseObject(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":1,"A":2}`, `{"a":{"b":[{"c":null},[]]},"d":"\ud800"}`, `null`, `[]`,
		`{"a":1}{}`, `{"\u0061":1,"a":2}`, `{"ſ":1,"s":2,"S":3}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := applehook.ParseObject(b)
		if err != nil {
			return
		}
		var again map[string]any
		if err := json.Unmarshal(b, &again); err != nil || len(again) != len(o) {
			t.Fatalf("%q: %d members, encoding/json has %d, %v", b, len(o), len(again), err)
		}
		for name := range o {
			for other := range o {
				if name != other && strings.EqualFold(name, other) {
					t.Errorf("%q has %q and %q", b, name, other)
				}
			}
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"applehook":1,"notification":{"data":{}},"transaction":{"price":1},"renewal":null,"appTransaction":{}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := applehook.Decode(&consumer.Message{Payload: b})
		if (n == nil) == (err == nil) || err != nil && !consumer.IsPermanent(err) {
			t.Errorf("%v, %v", n, err)
		}
	})
}

// A response is accepted only if it contains what the authority signed.
func FuzzOCSPResponse(f *testing.F) {
	c := fixedChain(f)
	r := newResponder(f, c)
	v := newVerifier(f, c, ask(r))
	var recorded, signed [][]byte
	r.record = func(der, tbs []byte) { recorded, signed = append(recorded, der), append(signed, tbs) }
	if _, err := verify(f, v, body(f, c.sign(f, notification()))); err != nil || len(recorded) != 2 {
		f.Fatal(len(recorded), err)
	}
	for _, der := range recorded {
		f.Add(der)
	}
	f.Fuzz(func(t *testing.T, der []byte) {
		// The second request was about the leaf.
		if applehook.CheckOCSPResponse(der, c.leaf.Certificate, c.intermediate.Certificate, received) == nil &&
			!bytes.Contains(der, signed[1]) {
			t.Errorf("accepted: %x", der)
		}
	})
}
