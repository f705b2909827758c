package httpidem

import (
	"crypto/hmac"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/txonce/txonce/internal/httpkey"
)

var errUnreadable = errors.New("the stored response cannot be read")

// encode returns what is stored for a response.
func encode(f fingerprint, r *response, seal func(response []byte) ([]byte, error)) ([]byte, error) {
	content := r.encode()
	head := append([]byte{httpkey.SchemaVersion, httpkey.HMACSHA256}, f[:]...)
	if seal == nil {
		return append(append(head, httpkey.Plain), content...), nil
	}
	secret, err := seal(content)
	if err != nil {
		return nil, fmt.Errorf("Config.Seal: %w", err)
	}
	return append(append(head, httpkey.Sealed), secret...), nil
}

// matches reports whether a stored result belongs to a request with this fingerprint. It returns errUnreadable if the
// result has no fingerprint that this version can read.
func matches(result []byte, f fingerprint) (bool, error) {
	if len(result) < httpkey.HeadSize || result[0] != httpkey.SchemaVersion || result[1] != httpkey.HMACSHA256 {
		return false, errUnreadable
	}
	return hmac.Equal(result[2:httpkey.HeadSize-1], f[:]), nil
}

// decode returns the response of a stored result.
func decode(result []byte, open func(sealed []byte) ([]byte, error)) (*response, error) {
	if len(result) < httpkey.HeadSize || result[0] != httpkey.SchemaVersion {
		return nil, errUnreadable
	}
	content := result[httpkey.HeadSize:]
	switch result[httpkey.HeadSize-1] {
	case httpkey.Plain:
	case httpkey.Sealed:
		if open == nil {
			return nil, fmt.Errorf("%w: it is sealed, and Config.Open is not set", errUnreadable)
		}
		var err error
		if content, err = open(content); err != nil {
			return nil, fmt.Errorf("%w: Config.Open: %w", errUnreadable, err)
		}
	default:
		return nil, errUnreadable
	}
	return decodeResponse(content)
}

func (r *response) encode() []byte {
	b := binary.AppendUvarint(make([]byte, 0, r.size()+64), uint64(r.status))
	b = binary.AppendUvarint(b, uint64(len(r.header)))
	for _, name := range slices.Sorted(maps.Keys(r.header)) {
		b = appendText(b, name)
		b = binary.AppendUvarint(b, uint64(len(r.header[name])))
		for _, v := range r.header[name] {
			b = appendText(b, v)
		}
	}
	return append(b, r.body...)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func decodeResponse(b []byte) (*response, error) {
	d := decoder{rest: b}
	res := &response{status: int(d.number(999)), header: http.Header{}}
	for range d.number(uint64(len(b))) {
		name := d.text()
		res.header[name] = nil
		for range d.number(uint64(len(b))) {
			res.header[name] = append(res.header[name], d.text())
			if d.failed {
				return nil, errUnreadable
			}
		}
		if d.failed {
			return nil, errUnreadable
		}
	}
	if d.failed || res.status < 200 {
		return nil, errUnreadable
	}
	res.body = d.rest
	return res, nil
}

// decoder reads from bytes that may be anything.
type decoder struct {
	rest   []byte
	failed bool
}

func (d *decoder) number(most uint64) uint64 {
	n, size := binary.Uvarint(d.rest)
	if size <= 0 || n > most {
		d.failed, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[size:]
	return n
}

func (d *decoder) text() string {
	n := d.number(uint64(len(d.rest)))
	if n > uint64(len(d.rest)) { // the number itself took bytes
		d.failed, n = true, 0
	}
	s := string(d.rest[:n])
	d.rest = d.rest[n:]
	return s
}
