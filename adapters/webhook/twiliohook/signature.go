package twiliohook

import (
	"crypto/sha1" // Twilio's scheme; collisions of SHA-1 do not help to forge an HMAC
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

const signatureHeader = "X-Twilio-Signature"

// Sign returns the value of the header X-Twilio-Signature for a form that Twilio would send to target. It is for tests.
func Sign(authToken, target string, form url.Values) string {
	return mac(authToken, append([]byte(target), formText(canonical(form))...))
}

// SignJSON returns the URL and the value of the header X-Twilio-Signature for a JSON body that Twilio would send to
// target. It is for tests.
func SignJSON(authToken, target string, body []byte) (signedURL, signature string) {
	sum := sha256.Sum256(body)
	separator := "?"
	if strings.Contains(target, "?") {
		separator = "&"
	}
	target += separator + bodySHA256 + "=" + hex.EncodeToString(sum[:])
	return target, mac(authToken, []byte(target))
}

func mac(authToken string, text []byte) string {
	return base64.StdEncoding.EncodeToString(strict.MAC(sha1.New, []byte(authToken), text))
}

// canonical returns form with the values of each parameter sorted and each once. Twilio signs no more than that.
func canonical(form url.Values) url.Values {
	c := url.Values{}
	for name, values := range form {
		values = slices.Clone(values)
		slices.Sort(values)
		c[name] = slices.Compact(values)
	}
	return c
}

// formText returns the part of the signed text that comes from a canonical form.
func formText(form url.Values) []byte {
	var text []byte
	for _, name := range slices.Sorted(maps.Keys(form)) {
		for _, value := range form[name] {
			text = append(append(text, name...), value...)
		}
	}
	return text
}

// variants returns target without a port, and with one: its own, or the scheme's. It changes nothing else, because
// target was signed as it is. It returns nil if target is not an absolute HTTP URL.
func variants(target string) []string {
	scheme, rest, ok := strings.Cut(target, "://")
	port, known := map[string]string{"https": "443", "http": "80"}[strings.ToLower(scheme)]
	if !ok || !known {
		return nil
	}
	host := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		host = rest[:end]
	}
	path := rest[len(host):]
	if colon := strings.LastIndexByte(host, ':'); colon > strings.LastIndexAny(host, "]@") {
		host, port = host[:colon], host[colon+1:]
	}
	if host == "" {
		return nil
	}
	return []string{scheme + "://" + host + path, scheme + "://" + host + ":" + port + path}
}
