package stripehook

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

const (
	signatureHeader = "Stripe-Signature"
	maxHeader       = 4096 // bytes: room for more than 50 signatures
	maxDigits       = 12   // of a Unix time: the year 33658
)

// signatures is a Stripe-Signature header: t=1700000000,v1=<hex>,v1=<hex>.
type signatures struct {
	timestamp string // as it was sent: these bytes are signed
	v1        [][]byte
}

// parseHeader reads the one Stripe-Signature header of h. Other schemes than v1 are ignored and never used, as v0 is for Stripe's own
// tests. A v1 that is not a hash in hexadecimal is skipped: it matches nothing.
func parseHeader(h http.Header) (s signatures, err error) {
	values := h.Values(signatureHeader)
	switch {
	case len(values) == 0:
		return s, errors.New("the header " + signatureHeader + " is missing")
	case len(values) > 1:
		return s, fmt.Errorf("the header %s occurs %d times", signatureHeader, len(values))
	case len(values[0]) > maxHeader:
		return s, fmt.Errorf("the header %s has %d bytes", signatureHeader, len(values[0]))
	}
	signed := false
	for pair := range strings.SplitSeq(values[0], ",") {
		name, value, found := strings.Cut(pair, "=")
		if !found || strings.Contains(value, "=") {
			return s, errors.New("the header " + signatureHeader + " is not a list of name=value")
		}
		switch name {
		case "t":
			if s.timestamp != "" { // which of the two would be the signed one?
				return s, errors.New("the header " + signatureHeader + " has two times")
			}
			if !isDigits(value) || len(value) > maxDigits {
				return s, errors.New("the time in the header " + signatureHeader + " is not a number of up to 12 digits")
			}
			s.timestamp = value
		case "v1":
			signed = true
			if sum, err := hex.DecodeString(value); err == nil && len(sum) == sha256.Size {
				s.v1 = append(s.v1, sum)
			}
		}
	}
	switch {
	case s.timestamp == "":
		return s, errors.New("the header " + signatureHeader + " has no time")
	case !signed:
		return s, errors.New("the header " + signatureHeader + " has no v1 signature")
	}
	return s, nil
}

func isDigits(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }) < 0
}

// endpoint verifies with one secret. It keeps the secret in a function, so that a Verifier that somebody logs does not show it.
type endpoint struct {
	mode    Mode
	connect bool
	sign    func(timestamp string, body []byte) []byte
}

func newEndpoint(s Secret) endpoint {
	with := func(timestamp string, body []byte) []byte { return sign(s.Value, timestamp, body) }
	return endpoint{mode: s.Mode, connect: s.Connect, sign: with}
}

// signers says what kinds of endpoints signed a body.
type signers struct{ live, liveConnect, test bool }

func (s signers) none() bool { return !s.live && !s.test }

// signers compares each signature with that of each secret. It never stops early, so its time does not show which secret matched.
func (v *Verifier) signers(header signatures, body []byte) signers {
	var live, liveConnect, test int
	for _, e := range v.endpoints {
		want, match := e.sign(header.timestamp, body), 0
		for _, got := range header.v1 {
			match |= subtle.ConstantTimeCompare(want, got)
		}
		switch {
		case e.mode == Test:
			test |= match
		case e.connect:
			live |= match
			liveConnect |= match
		default:
			live |= match
		}
	}
	return signers{live: live == 1, liveConnect: liveConnect == 1, test: test == 1}
}

// sign returns the v1 signature of body. The key is the secret with its prefix.
func sign(secret, timestamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(timestamp))
	mac.Write([]byte("."))
	mac.Write(body)
	return mac.Sum(nil)
}
