package httpidem

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
)

// readBody reads the whole body. It refuses a body that is too long, incomplete, or was read before.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, *refusal) {
	// ParseForm reads the bodies of these methods only. With others it parses the query, which does no harm.
	form := r.Form != nil && slices.Contains([]string{http.MethodPost, http.MethodPut, http.MethodPatch}, r.Method)
	switch {
	case form || len(r.PostForm) > 0 || r.MultipartForm != nil:
		return nil, refuse(Misused, errors.New("a middleware has parsed the form before httpidem could read the body: put it behind httpidem"))
	case r.ContentLength > most:
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
	case int64(len(body)) < r.ContentLength:
		return nil, refuse(Misused, fmt.Errorf("the body has %d bytes left of %d: a middleware has read it before httpidem", len(body), r.ContentLength))
	}
	return body, nil
}
