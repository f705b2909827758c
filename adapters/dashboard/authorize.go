package dashboard

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Permission is something that a viewer may do.
type Permission string

// The permissions.
const (
	// see everything but payloads and header values; business keys are visible, see Config.HideKeys
	View    Permission = "view"
	Payload Permission = "payload" // see payloads and header values
	Act     Permission = "act"     // replay, discard and unpark
)

// ErrNotLoopback says that a request did not come from this machine, or came through a proxy.
var ErrNotLoopback = errors.New("dashboard: the request is not from this machine: use a tunnel, or a Config.Authorize that knows its users")

// ErrReadOnly is the answer of Loopback to Payload and Act.
var ErrReadOnly = errors.New("dashboard: read-only: Loopback grants neither payload nor act")

// Loopback is a Config.Authorize. It grants only View, and only to requests from this machine: the peer and the Host
// are loopback addresses, and no header says that a proxy forwarded the request. The test of the Host keeps out pages
// of other sites whose name resolves to a loopback address.
//
// Do not use it behind a proxy on this machine that adds no such header, as nginx without proxy_set_header: its
// requests look like those of a person on this machine.
//
// A program on a trusted machine may grant more after it asked Loopback about View.
func Loopback(r *http.Request, p Permission) (who string, err error) {
	if !loopbackHost(r.RemoteAddr) || !loopbackHost(r.Host) || !r.ProtoAtLeast(1, 1) {
		// proxies speak HTTP/1.0, browsers do not
		return "", ErrNotLoopback
	}
	for name := range r.Header {
		if name == "Forwarded" || name == "Via" || name == "X-Real-Ip" || strings.HasPrefix(name, "X-Forwarded-") {
			return "", ErrNotLoopback
		}
	}
	if p != View {
		return "", ErrReadOnly
	}
	return "loopback", nil
}

func loopbackHost(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}
