package hmachook

import (
	"crypto"
	"crypto/sha1" // only with RiskSHA1
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

// maxElements is more than any sender's header has.
const maxElements = 32

func (p *plan) newHash() func() hash.Hash {
	switch p.cfg.Hash {
	case SHA512:
		return sha512.New
	case SHA1:
		return sha1.New
	default:
		return sha256.New
	}
}

// readHeaders returns the signatures of a delivery, at least one, and its timestamp if it is outside of the body.
func (p *plan) readHeaders(h http.Header) (macs [][]byte, timestamp string, err error) {
	value, err := strict.Header(h, p.cfg.SignatureHeader)
	if err != nil {
		return nil, "", err
	}
	signatures := []string{value}
	if p.cfg.SignatureElement != "" {
		if signatures, timestamp, err = p.elements(value); err != nil {
			return nil, "", fmt.Errorf("the header %s %w", p.cfg.SignatureHeader, err)
		}
	}
	for _, s := range signatures {
		s, ok := strings.CutPrefix(s, p.cfg.SignaturePrefix)
		if !ok {
			continue
		}
		if mac, err := decode(p.cfg.SignatureEncoding, s); err == nil && p.possible(len(mac)) {
			macs = append(macs, mac)
		}
	}
	if len(macs) == 0 {
		return nil, "", fmt.Errorf("the header %s has no signature of the configured form", p.cfg.SignatureHeader)
	}
	if p.cfg.TimestampHeader != "" {
		timestamp, err = strict.Header(h, p.cfg.TimestampHeader)
	}
	return macs, timestamp, err
}

// elements reads a header such as "ts=1;h1=ab;h1=cd".
func (p *plan) elements(value string) (signatures []string, timestamp string, err error) {
	elements := strings.SplitN(value, p.cfg.ElementSeparator, maxElements+1)
	if len(elements) > maxElements {
		return nil, "", fmt.Errorf("has more than %d elements", maxElements)
	}
	times := 0
	for _, element := range elements {
		name, value, ok := strings.Cut(strings.TrimSpace(element), "=")
		switch {
		case !ok:
			return nil, "", errors.New("has an element without =")
		case name == p.cfg.SignatureElement:
			signatures = append(signatures, value)
		case name == p.cfg.TimestampElement:
			timestamp = value
			times++
		}
	}
	if p.cfg.TimestampElement != "" && times != 1 {
		return nil, "", fmt.Errorf("has the element %s %d times", p.cfg.TimestampElement, times)
	}
	return signatures, timestamp, nil
}

// written is RFC 3339 in the one form in which no beginning and no end of a time is a time too. time.Parse accepts
// others, such as a comma before the fraction.
var written = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:\d{2})$`)

// parseSigned reads a time that is a part of the signed text.
func parseSigned(format TimeFormat, text string) (time.Time, error) {
	if format == RFC3339 && !written.MatchString(text) {
		return time.Time{}, errors.New("is not a time in the form of RFC 3339")
	}
	return parseTime(format, text)
}

// parseTime reads a time. Its digits are limited, so that no value overflows.
func parseTime(format TimeFormat, text string) (time.Time, error) {
	if format == RFC3339 {
		return strict.RFC3339(text)
	}
	most, of := 12, func(n int64) time.Time { return time.Unix(n, 0) }
	if format == UnixMillis {
		most, of = 15, time.UnixMilli
	}
	n, err := strict.Digits(text, most)
	return of(n), err
}

// Sign returns the header fields that the sender described by Config would add to sign body at now, with the first of
// Secrets. url is needed only if {url} is signed. It is for tests. It panics with PublicKeys: use SignTo, as for a
// sender that signs headers.
func (v *Verifier) Sign(url string, body []byte, now time.Time) http.Header {
	h := http.Header{}
	if err := v.SignTo(h, nil, url, body, now); err != nil {
		panic(err)
	}
	return h
}

// SignTo is Sign for all Configs: it adds the fields to h, which has the headers that Config.Signed names. key is the
// private key of one of PublicKeys, or nil for the first of Secrets.
func (v *Verifier) SignTo(h http.Header, key crypto.Signer, url string, body []byte, now time.Time) error {
	cfg := v.plan.cfg
	timestamp := formatTime(cfg.TimestampFormat, now)
	made, err := v.plan.sign(key, v.plan.signed.text(h, body, timestamp, url))
	if err != nil {
		return err
	}
	signature := hex.EncodeToString(made)
	if cfg.SignatureEncoding == Base64 {
		signature = base64.StdEncoding.EncodeToString(made)
	}
	value := cfg.SignaturePrefix + signature
	if cfg.SignatureElement != "" {
		value = cfg.SignatureElement + "=" + value
		if cfg.TimestampElement != "" {
			value = cfg.TimestampElement + "=" + timestamp + cfg.ElementSeparator + value
		}
	}
	h.Set(cfg.SignatureHeader, value)
	if cfg.TimestampHeader != "" {
		h.Set(cfg.TimestampHeader, timestamp)
	}
	return nil
}

func formatTime(format TimeFormat, t time.Time) string {
	switch format {
	case UnixMillis:
		return strconv.FormatInt(t.UnixMilli(), 10)
	case RFC3339:
		return t.UTC().Format(time.RFC3339Nano)
	default:
		return strconv.FormatInt(t.Unix(), 10)
	}
}
