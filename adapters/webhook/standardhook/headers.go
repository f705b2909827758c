package standardhook

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

// signed is what the three headers of a delivery say.
type signed struct {
	id, timestamp, signature string
}

// families are the prefixes of the headers.
var families = [...]string{"Webhook-", "Svix-"}

// readHeaders reads one family of headers. If there are headers of both, they must agree: otherwise an attacker could
// add an ID to a captured delivery that another reader, such as a proxy, takes for the event's.
func readHeaders(h http.Header) (signed, error) {
	var found []signed
	for _, prefix := range families {
		s, there, err := readFamily(h, prefix)
		if err != nil {
			return signed{}, err
		}
		if there {
			found = append(found, s)
		}
	}
	switch {
	case len(found) == 0:
		return signed{}, errors.New("there are no webhook-… headers and no svix-… headers")
	case len(found) == 2 && found[0] != found[1]:
		return signed{}, errors.New("the webhook-… headers and the svix-… headers differ")
	default:
		return found[0], nil
	}
}

func readFamily(h http.Header, prefix string) (s signed, there bool, err error) {
	fields := [...]struct {
		name string
		into *string
	}{{"Id", &s.id}, {"Timestamp", &s.timestamp}, {"Signature", &s.signature}}
	for _, f := range fields {
		there = there || len(h.Values(prefix+f.name)) > 0
	}
	if !there {
		return s, false, nil
	}
	for _, f := range fields {
		if *f.into, err = strict.Header(h, prefix+f.name); err != nil {
			return s, true, err
		}
	}
	return s, true, nil
}

// maxSignatures limits how much work a forged header can cause.
const maxSignatures = 32

// parseSignatures returns the encoded signatures of the two known versions. Other versions, which a later specification
// may have, are ignored.
func parseSignatures(header string) (v1, v1a []string, err error) {
	items := strings.Split(header, " ")
	if len(items) > maxSignatures {
		return nil, nil, fmt.Errorf("there are %d signatures, more than %d", len(items), maxSignatures)
	}
	for _, item := range items {
		switch version, signature, _ := strings.Cut(item, ","); {
		case signature == "":
		case version == "v1":
			v1 = append(v1, signature)
		case version == "v1a":
			v1a = append(v1a, signature)
		}
	}
	if len(v1)+len(v1a) == 0 {
		return nil, nil, errors.New("there is no signature of version v1 or v1a")
	}
	return v1, v1a, nil
}
