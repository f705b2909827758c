package driver

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// binaryName begins an encoded header name that JSON cannot hold, or that itself begins with binaryName.
const binaryName = "base64:"

// binaryValue is an encoded header value that JSON or a database's JSON type cannot hold.
type binaryValue struct {
	Base64 *[]byte `json:"base64"`
}

// EncodeHeaders writes headers as a JSON object for a ParkingLot's json column. Names and values may contain any bytes.
// A value that is not UTF-8, or that contains a NUL, which PostgreSQL refuses, becomes {"base64": "…"}. Such a name
// becomes "base64:…". Equal headers give equal bytes. nil gives {}.
func EncodeHeaders(headers map[string]string) ([]byte, error) {
	object := make(map[string]any, len(headers))
	for name, value := range headers {
		if !isText(name) || strings.HasPrefix(name, binaryName) {
			name = binaryName + base64.StdEncoding.EncodeToString([]byte(name))
		}
		if isText(value) {
			object[name] = value
		} else {
			b := []byte(value)
			object[name] = binaryValue{&b}
		}
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false) // for readability
	if err := enc.Encode(object); err != nil {
		return nil, fmt.Errorf("dedup: encode headers: %w", err)
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// DecodeHeaders is the inverse of EncodeHeaders. {} gives nil.
func DecodeHeaders(encoded []byte) (map[string]string, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(encoded, &object); err != nil {
		return nil, fmt.Errorf("dedup: decode headers: %w", err)
	}
	if len(object) == 0 {
		return nil, nil
	}
	headers := make(map[string]string, len(object))
	for name, raw := range object {
		if encodedName, binary := strings.CutPrefix(name, binaryName); binary {
			b, err := base64.StdEncoding.DecodeString(encodedName)
			if err != nil {
				return nil, fmt.Errorf("dedup: decode headers: name %q: %w", name, err)
			}
			name = string(b)
		}
		if _, twice := headers[name]; twice {
			return nil, fmt.Errorf("dedup: decode headers: name %q is there twice", name)
		}
		value, err := decodeHeader(raw)
		if err != nil {
			return nil, fmt.Errorf("dedup: decode headers: value of %q: %w", name, err)
		}
		headers[name] = value
	}
	return headers, nil
}

func decodeHeader(raw json.RawMessage) (text string, err error) {
	if raw[0] == '"' {
		err = json.Unmarshal(raw, &text)
		return text, err
	}
	var binary binaryValue
	if err := json.Unmarshal(raw, &binary); err != nil {
		return "", err
	}
	if binary.Base64 == nil {
		return "", fmt.Errorf(`it is neither a string nor {"base64": "…"}`)
	}
	return string(*binary.Base64), nil
}

// isText reports whether s survives a database's text and JSON types unchanged.
func isText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }
