package httpidem

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"

	"github.com/txonce/txonce/internal/httpkey"
)

// target returns the request's target as the client sent it, in origin form. r.URL is not used, because
// http.StripPrefix and routers change it. "/a%2Fb" and "/a/b" are different resources, and so are "/a" and "/a/", and
// two orders of the query.
func target(r *http.Request) (string, error) {
	uri := r.RequestURI
	if uri == "" {
		return "", fmt.Errorf("http.Request.RequestURI is empty: it must be the target that the client sent, as net/http's server and httptest.NewRequest set it")
	}
	return httpkey.Target(uri), nil
}

// fingerprint is a keyed hash of a request's content. It is stored with the response.
type fingerprint [sha256.Size]byte

func fingerprintUnder(secret, content []byte) (f fingerprint) {
	mac := hmac.New(sha256.New, secret)
	httpkey.Write(mac, "txonce httpidem fingerprint 1", string(content))
	mac.Sum(f[:0])
	return f
}

// mediaTypeAndBody is the default of Config.Fingerprint. Parameters of the media type do not count: the boundary of a
// multipart body is part of the body, too.
func mediaTypeAndBody(r *http.Request, body []byte) ([]byte, error) {
	header := r.Header.Get("Content-Type")
	kind, _, err := mime.ParseMediaType(header)
	if err != nil {
		kind = header
	}
	content := binary.AppendUvarint(make([]byte, 0, len(kind)+len(body)+binary.MaxVarintLen64), uint64(len(kind)))
	return append(append(content, kind...), body...), nil
}

// CompactJSON is a Config.Fingerprint that ignores white space between the parts of a JSON body. The order of members
// counts, because a handler may read duplicate members differently. For other bodies it is the default Fingerprint.
func CompactJSON(r *http.Request, body []byte) ([]byte, error) {
	var compact bytes.Buffer
	if json.Compact(&compact, body) != nil {
		return mediaTypeAndBody(r, body)
	}
	return mediaTypeAndBody(r, compact.Bytes())
}

// Anonymous is a Config.Principal for routes without authentication. All clients share their keys: a client that knows
// a key and the request gets the response. Use it only where keys are random and responses are no secret.
func Anonymous(*http.Request) (string, error) { return "anonymous", nil }
