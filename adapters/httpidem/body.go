package httpidem

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
)

// readBody reads the whole body. It refuses a body that is too long, incomplete, or was read before.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, *refusal) {
	// ParseForm reads the bodies of these methods only. With others it parses the query, which does no harm.
	form := r.Form != nil && slices.Contains([]string{http.MethodPost, http.MethodPut, http.MethodPatch}, r.Method)
	switch {
	case form || len(r.PostForm) > 0 || r.MultipartForm != nil:
		return nil, refuse(Misused, errors.New("a middleware has parsed the form before httpidem could read the body: put it behind httpidem"))
	case r.ContentLength > most && ofServer(r.Body):
		return nil, refuse(BodyTooLarge, fmt.Errorf("the body has %d bytes: want %d at most", r.ContentLength, most))
	case r.Body == nil:
		return nil, nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	var tooLong *http.MaxBytesError // may come from an outer layer, which has a limit of its own
	switch {
	case errors.As(err, &tooLong):
		return nil, refuse(BodyTooLarge, fmt.Errorf("the body has more than %d bytes", tooLong.Limit))
	case err != nil:
		return nil, refuse(BodyIncomplete, fmt.Errorf("read the body: %w", err))
	case int64(len(body)) < r.ContentLength && (ofServer(r.Body) || len(body) == 0 && !encoded(r.Header)):
		return nil, refuse(Misused, fmt.Errorf("the body has %d bytes left of %d: a middleware has read it before httpidem", len(body), r.ContentLength))
	}
	return body, nil
}

// ofServer reports whether a body is the one that net/http's server made, maybe behind limits of http.MaxBytesReader.
// Only then ContentLength is its length: middleware that decompresses a body replaces it, and often leaves the length
// of the compressed one.
func ofServer(body io.ReadCloser) bool {
	for v := reflect.ValueOf(body); v.IsValid(); v = v.Elem() {
		if v.Kind() != reflect.Pointer || v.IsNil() {
			return strings.HasPrefix(v.Type().PkgPath(), "net/http")
		}
		if kind := v.Type().Elem(); kind.Name() != "maxBytesReader" {
			return strings.HasPrefix(kind.PkgPath(), "net/http")
		}
		if v = v.Elem().FieldByName("r"); v.Kind() != reflect.Interface { // what it limits
			return false
		}
	}
	return false
}

// encoded reports whether the client has sent an encoded body, so that a body without bytes may be what it decodes to.
func encoded(h http.Header) bool {
	for _, name := range split(h["Content-Encoding"]) {
		if !strings.EqualFold(name, "identity") {
			return true
		}
	}
	return false
}
