package stripehook

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

const (
	signatureHeader = "Stripe-Signature"
	maxDigits       = 12 // of a Unix time: the year 33658
)

// signatures is a Stripe-Signature header: t=1700000000,v1=<hex>,v1=<hex>.
type signatures struct {
	timestamp string // as it was sent: these bytes are signed
	at        time.Time
	v1        [][]byte
}

// parseHeader reads the one Stripe-Signature header of h. Other schemes than v1 are ignored and never used, as v0 is
// for Stripe's own tests. A v1 that is not a hash in hexadecimal is skipped: it matches nothing.
func parseHeader(h http.Header) (s signatures, err error) {
	value, err := strict.Header(h, signatureHeader)
	if err != nil {
		return s, err
	}
	signed := false
	for pair := range strings.SplitSeq(value, ",") {
		name, value, found := strings.Cut(pair, "=")
		if !found || strings.Contains(value, "=") {
			return s, errors.New("the header " + signatureHeader + " is not a list of name=value")
		}
		switch name {
		case "t":
			if s.timestamp != "" { // which of the two would be the signed one?
				return s, errors.New("the header " + signatureHeader + " has two times")
			}
			seconds, err := strict.Digits(value, maxDigits)
			if err != nil {
				return s, fmt.Errorf("the time in the header %s: %w", signatureHeader, err)
			}
			s.at = time.Unix(seconds, 0)
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

// endpoint verifies with one secret. It keeps the secret in a function, so that a Verifier in a log does not show it.
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

// signers compares each signature with that of each secret. It never stops early, so its time does not show which
// secret matched.
func (v *Verifier) signers(header signatures, body []byte) (s signers) {
	for _, e := range v.endpoints {
		if !strict.AnyEqual([][]byte{e.sign(header.timestamp, body)}, header.v1) {
			continue
		}
		switch {
		case e.mode == Test:
			s.test = true
		case e.connect:
			s.live, s.liveConnect = true, true
		default:
			s.live = true
		}
	}
	return s
}

// sign returns the v1 signature of body. The key is the secret with its prefix.
func sign(secret, timestamp string, body []byte) []byte {
	return strict.MAC(sha256.New, []byte(secret), []byte(timestamp), []byte("."), body)
}
