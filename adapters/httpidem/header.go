package httpidem

import (
	"cmp"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
)

// storedHeaders are stored with each response. Content-Encoding belongs to the bytes of the body.
var storedHeaders = []string{
	"Content-Type", "Content-Encoding", "Content-Language", "Location", "Etag", "Link", "Cache-Control",
	"Content-Disposition", "Content-Range", "X-Content-Type-Options",
}

// replayedHeader marks the answer to a repeat.
const replayedHeader = "Idempotent-Replayed"

// neverStored are headers of one client, one request or one connection.
var neverStored = []string{
	"Set-Cookie", "Set-Cookie2", "Authorization", "Authentication-Info", "Www-Authenticate",
	"X-Csrf-Token", "X-Xsrf-Token", "Csrf-Token", "Vary", "Date", "Age", "Content-Length", "Retry-After",
	replayedHeader,
	"Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// neverStoredPrefixes begin such headers too. An outer layer makes those of CORS for the Origin of each request.
var neverStoredPrefixes = []string{"Proxy-", "Access-Control-", http.TrailerPrefix}

// checkHeaders returns all names of headers that are stored.
func checkHeaders(more []string, refuse func(string, ...any)) []string {
	all := slices.Clone(storedHeaders)
	for i, name := range more {
		name = textproto.CanonicalMIMEHeaderKey(name)
		hasPrefix := func(p string) bool { return strings.HasPrefix(name, p) }
		switch {
		case name == "" || strings.ContainsAny(name, " \t\r\n:"):
			refuse("Headers[%d], %q, is no name of a header", i, name)
		case slices.Contains(neverStored, name) || slices.ContainsFunc(neverStoredPrefixes, hasPrefix):
			refuse("Headers[%d], %s, belongs to one client, request or connection and must not be replayed: remove it",
				i, name)
		case !slices.Contains(all, name):
			all = append(all, name)
		}
	}
	return all
}

// notForKeys are headers that mean something else.
var notForKeys = []string{
	"Accept", "Accept-Encoding", "Authorization", "Content-Encoding", "Content-Length", "Content-Type", "Cookie", "Date",
	"Expect", "Host", "Origin", "Referer", "User-Agent",
}

// checkKeyHeader returns the canonical name of the header with the key.
func (c *Config[TTx]) checkKeyHeader(refuse func(string, ...any)) string {
	name := textproto.CanonicalMIMEHeaderKey(cmp.Or(c.Header, defaultHeader))
	switch {
	case !token(name):
		refuse("Header, %q, is no name of a header", c.Header)
	case slices.Contains(notForKeys, name) || slices.Contains(neverStored, name):
		refuse("Header, %s, has another meaning: take %s or a name of your own", name, defaultHeader)
	}
	return name
}

// token reports whether name is a token of RFC 9110.
func token(name string) bool {
	for i := range len(name) {
		c := name[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return true
}

// response is a whole response.
type response struct {
	status int
	header http.Header
	body   []byte
}

// stored returns the part of a response that is stored.
func (r *response) stored(names []string) *response {
	kept := http.Header{}
	for _, name := range names {
		if values, set := r.header[name]; set {
			// also without values, which keeps net/http from guessing a Content-Type
			kept[name] = values
		}
	}
	return &response{status: r.status, header: kept, body: r.body}
}

// size returns about how many bytes the response has.
func (r *response) size() int {
	n := len(r.body)
	for name, values := range r.header {
		for _, v := range values {
			n += len(name) + len(v)
		}
	}
	return n
}

// send writes the response to the client. It replaces headers that outer layers have set, except Vary, which it adds
// to.
func (r *response) send(w http.ResponseWriter) {
	h := w.Header()
	for name, values := range r.header {
		if name == "Vary" {
			values = append(h[name], values...)
		}
		h[name] = values
	}
	if bodyAllowed(r.status) {
		h.Set("Content-Length", strconv.Itoa(len(r.body)))
	}
	w.WriteHeader(r.status)
	if len(r.body) > 0 {
		_, _ = w.Write(r.body) // the client may be gone; its retry gets the stored response
	}
}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// accepts reports whether a client accepts a body in these encodings. A client that sends no Accept-Encoding may
// understand none.
func accepts(request http.Header, encodings []string) bool {
	for _, encoding := range split(encodings) {
		if encoding != "identity" && !accepted(split(request["Accept-Encoding"]), encoding) {
			return false
		}
	}
	return true
}

// accepted reports whether the members of Accept-Encoding name the encoding, or everything.
func accepted(members []string, encoding string) bool {
	all := false
	for _, m := range members {
		name, q, _ := strings.Cut(m, ";")
		yes := !refusesEncoding(q)
		switch name = strings.TrimSpace(name); {
		case name == encoding, name == "x-"+encoding, "x-"+name == encoding:
			return yes
		case name == "*":
			all = yes
		}
	}
	return all
}

// refusesEncoding reports whether a weight is zero.
func refusesEncoding(weight string) bool {
	name, value, _ := strings.Cut(strings.ReplaceAll(weight, " ", ""), "=")
	q, err := strconv.ParseFloat(value, 64)
	return name == "q" && (err != nil || q <= 0)
}

// split returns the members of comma-separated header values, in lower case.
func split(values []string) (members []string) {
	for _, v := range values {
		for m := range strings.SplitSeq(v, ",") {
			if m = strings.ToLower(strings.TrimSpace(m)); m != "" {
				members = append(members, m)
			}
		}
	}
	return members
}
