package hmachook

import (
	"crypto"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/txonce/txonce/adapters/webhook/internal/strict"
	"github.com/txonce/txonce/internal/risks"
)

const (
	minSecret      = 16
	defaultHorizon = 400 * 24 * time.Hour
)

var (
	sourceName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,63}$`)
	fieldName  = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$") // of HTTP
)

// plan is a valid Config, with its parts read.
type plan struct {
	cfg    Config
	keys   [][]byte           // of an HMAC
	public []crypto.PublicKey // nil: the signatures are HMACs
	signed template

	items, timestamp, topic, scope, created []string // paths; nil: none
	handshake, challenge                    []string // paths; nil: none
	wholeBody                               bool     // the body is the array of items
	ids, fingerprint                        [][]string
}

// checker collects what is wrong with a Config.
type checker struct{ wrong []error }

func (c *checker) refuse(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Errorf("hmachook: Config."+format, args...))
}

// newPlan returns the plan of cfg with its defaults, or one error that names all fields at fault.
func newPlan(cfg Config) (p plan, err error) {
	c := &checker{}
	p.cfg = cfg
	if !sourceName.MatchString(cfg.Name) {
		c.refuse("Name is %q: want a name of the sender, such as square: a-z, 0-9, _ and -, at most 64", cfg.Name)
	}
	if err := strict.Sender(cfg.Name); err != nil {
		c.refuse("Name %w", err)
	}
	p.keys, p.public = c.secrets(cfg), c.publicKeys(cfg)
	c.signature(cfg)
	if p.cfg.Signed == "" {
		p.cfg.Signed = "{body}"
	}
	if p.signed, err = newTemplate(p.cfg.Signed, cfg.TimestampFormat); err != nil {
		c.refuse("Signed is %q: %w", p.cfg.Signed, err)
	}
	c.signedHeaders(&p)
	c.risks(&p)
	c.timestamp(&p)
	c.events(&p)
	c.handshake(&p)
	c.source(&p)
	return p, errors.Join(c.wrong...)
}

func (c *checker) secrets(cfg Config) (keys [][]byte) {
	if len(cfg.Secrets)+len(cfg.PublicKeys) == 0 {
		c.refuse("Secrets is required, or PublicKeys: copy the signing secret of the endpoint from the sender")
	}
	if cfg.SecretEncoding > Base64 {
		c.refuse("SecretEncoding is %d: want Plain, Hex or Base64", cfg.SecretEncoding)
	}
	for i, secret := range cfg.Secrets {
		if err := strict.Written(secret); err != nil {
			c.refuse("Secrets[%d] %w: copy the signing secret of the endpoint from the sender", i, err)
			continue
		}
		key, err := decode(cfg.SecretEncoding, secret)
		if err != nil {
			c.refuse("Secrets[%d] is not written as SecretEncoding says: copy it again, or set another SecretEncoding", i)
		} else if err := strict.Key(key, minSecret); err != nil {
			c.refuse("Secrets[%d] %w: copy the signing secret of the endpoint from the sender, or let it make a longer one", i, err)
		}
		keys = append(keys, key)
	}
	return keys
}

// decode does not show s in its error.
func decode(as Encoding, s string) ([]byte, error) {
	switch as {
	case Hex:
		return hex.DecodeString(s)
	case Base64:
		return strict.Base64(base64.StdEncoding, s)
	default:
		return []byte(s), nil
	}
}

func (c *checker) signature(cfg Config) {
	if !fieldName.MatchString(cfg.SignatureHeader) {
		c.refuse("SignatureHeader is %q: want the name of the header that has the signature", cfg.SignatureHeader)
	}
	if cfg.SignatureEncoding != Hex && cfg.SignatureEncoding != Base64 {
		c.refuse("SignatureEncoding is required: Hex or Base64")
	}
	if cfg.Hash > SHA1 {
		c.refuse("Hash is %d: want SHA256, SHA512 or SHA1", cfg.Hash)
	}
	if (cfg.SignatureElement == "") != (cfg.ElementSeparator == "") {
		c.refuse("SignatureElement and Config.ElementSeparator belong together: set both, or none of them")
	}
	if cfg.SignatureElement != "" && cfg.SignatureElement == cfg.TimestampElement {
		c.refuse("TimestampElement is %q, as SignatureElement is: they are different elements", cfg.TimestampElement)
	}
}

func (c *checker) signedHeaders(p *plan) {
	if p.signed.signs(p.cfg.SignatureHeader) {
		c.refuse("Signed has the header %s, which is SignatureHeader: no signature covers itself",
			p.cfg.SignatureHeader)
	}
	if p.cfg.TimestampHeader != "" && p.signed.signs(p.cfg.TimestampHeader) {
		c.refuse("Signed has the header %s, which is TimestampHeader: write {timestamp}", p.cfg.TimestampHeader)
	}
}

func (c *checker) risks(p *plan) {
	cfg := p.cfg
	if err := risks.Check(cfg.AcceptedRisks, RiskSHA1, RiskUnsignedTopic); err != nil {
		c.refuse("%w", err)
	}
	if cfg.Hash == SHA1 && !slices.Contains(cfg.AcceptedRisks, RiskSHA1) {
		c.refuse("Hash is SHA1: use another one if the sender offers it, or accept RiskSHA1")
	}
	if cfg.TopicHeader != "" && !p.signed.signs(cfg.TopicHeader) && !slices.Contains(cfg.AcceptedRisks,
		RiskUnsignedTopic) {
		c.refuse("TopicHeader is not signed: use TopicPath, or Topic with an endpoint for each type, or accept RiskUnsignedTopic")
	}
}

func (c *checker) timestamp(p *plan) {
	cfg := &p.cfg
	p.timestamp = c.path("TimestampPath", cfg.TimestampPath)
	n := 0
	for _, place := range []string{cfg.TimestampHeader, cfg.TimestampElement, cfg.TimestampPath} {
		if place != "" {
			n++
		}
	}
	outside := cfg.TimestampHeader != "" || cfg.TimestampElement != ""
	switch {
	case n > 1:
		c.refuse("TimestampHeader, TimestampElement and TimestampPath are alternatives: set one of them")
	case outside && !p.signed.has(partTimestamp):
		c.refuse("Signed has no {timestamp}, so it is not signed: add it as the sender's documentation says")
	case !outside && p.signed.has(partTimestamp):
		c.refuse("Signed has {timestamp}: set TimestampHeader or TimestampElement to say where it is")
	case n == 0 && (cfg.Tolerance != 0 || cfg.TimestampFormat != DefaultFormat):
		c.refuse("Tolerance and TimestampFormat have no effect without a timestamp: set TimestampHeader, TimestampElement or TimestampPath")
	case cfg.TimestampElement != "" && cfg.SignatureElement == "":
		c.refuse("TimestampElement needs SignatureElement: they are elements of one header")
	}
	if cfg.TimestampHeader != "" && !fieldName.MatchString(cfg.TimestampHeader) {
		c.refuse("TimestampHeader is %q: want the name of a header", cfg.TimestampHeader)
	}
	if cfg.TimestampFormat > RFC3339 {
		c.refuse("TimestampFormat is %d: want UnixSeconds, UnixMillis or RFC3339", cfg.TimestampFormat)
	}
	var err error
	if cfg.Tolerance, err = strict.Tolerance(cfg.Tolerance); err != nil {
		c.refuse("Tolerance %w", err)
	}
	if cfg.TimestampFormat == DefaultFormat {
		cfg.TimestampFormat = UnixSeconds
	}
}

// path returns the names of a path, or nil if it is empty.
func (c *checker) path(field, path string) []string {
	if path == "" {
		return nil
	}
	return c.required(field, path)
}

func (c *checker) required(field, path string) []string {
	names, err := strict.Path(path)
	if err != nil {
		c.refuse("%s %w", field, err)
	}
	return names
}
