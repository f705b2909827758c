package awssqs

import (
	"encoding/base64"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/txonce/txonce/dedup/driver"
)

// How a message is written to SQS, whose bodies and attributes cannot hold all bytes that a message of an outbox may
// have:
//
//   - The payload is the body. A payload that SQS would refuse or alter is written as base64. SQS refuses an empty
//     body, so for an empty payload the body is the word "empty". attributeEncoding says which encoding was used.
//   - A header is an attribute with its name. The value is a String, or Binary if it has bytes that a String may not
//     have.
//   - SQS takes ten attributes. The other headers are in attributeHeaders, as driver.EncodeHeaders writes them, and so
//     are headers with an empty value or with a name that SQS does not accept. Headers of txonce become attributes
//     first, then the others in the order of their names. So the same headers are always written in the same way, and
//     each name is written once.
//   - attributeKey is the key. A message without a key does not have it.
const (
	attributeKey      = "txonce-key"
	attributeHeaders  = "txonce-headers"
	attributeEncoding = "txonce-encoding"

	encodingBase64 = "base64"
	encodingEmpty  = "empty" // the body has no meaning

	headerPrefix  = "txonce-"
	maxAttributes = 10
)

var attributeName = regexp.MustCompile(`^[a-zA-Z0-9_-]([a-zA-Z0-9_.-]{0,254}[a-zA-Z0-9_-])?$`)

// encodeBody returns payload as a body, and the name of its encoding; empty: the body is the payload.
func encodeBody(payload []byte) (body, encoding string) {
	switch {
	case len(payload) == 0:
		return encodingEmpty, encodingEmpty
	case legalText(string(payload)):
		return string(payload), ""
	default:
		return base64.StdEncoding.EncodeToString(payload), encodingBase64
	}
}

// encodeAttributes returns at most ten attributes for a message's key, the encoding of its body, and its headers.
func encodeAttributes(key, encoding string, headers map[string]string) (map[string]types.MessageAttributeValue, error) {
	attributes := make(map[string]types.MessageAttributeValue, maxAttributes)
	if key != "" {
		attributes[attributeKey] = attribute(key)
	}
	if encoding != "" {
		attributes[attributeEncoding] = attribute(encoding)
	}
	var names []string
	packed := make(map[string]string)
	for name, value := range headers {
		if value != "" && legalName(name) {
			names = append(names, name)
		} else {
			packed[name] = value
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if ours := strings.HasPrefix(a, headerPrefix); ours != strings.HasPrefix(b, headerPrefix) {
			if ours {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	places := maxAttributes - len(attributes)
	if len(packed) > 0 || len(names) > places {
		places--
		for _, name := range names[min(places, len(names)):] {
			packed[name] = headers[name]
		}
	}
	for _, name := range names[:min(places, len(names))] {
		attributes[name] = attribute(headers[name])
	}
	if len(packed) > 0 {
		encoded, err := driver.EncodeHeaders(packed)
		if err != nil {
			return nil, err
		}
		attributes[attributeHeaders] = attribute(string(encoded))
	}
	return attributes, nil
}

// decode is the inverse of encodeBody and encodeAttributes. When another program has sent the message, decode returns
// the body as it is and all attributes as headers, without their types. An error says which of our attributes is
// malformed; the message must not be dropped.
func decode(body string, attributes map[string]types.MessageAttributeValue) (key string, payload []byte, headers map[string]string, err error) {
	headers = make(map[string]string, len(attributes))
	if packed, ok := attributes[attributeHeaders]; ok {
		more, err := driver.DecodeHeaders([]byte(attributeBytes(packed)))
		if err != nil {
			return "", nil, nil, fmt.Errorf("awssqs: attribute %s: %w", attributeHeaders, err)
		}
		maps.Copy(headers, more)
	}
	encoding := ""
	for name, value := range attributes {
		switch name {
		case attributeHeaders:
		case attributeKey:
			key = attributeBytes(value)
		case attributeEncoding:
			encoding = attributeBytes(value)
		default:
			if _, twice := headers[name]; twice {
				return "", nil, nil, fmt.Errorf("awssqs: attribute %s holds %q, which is an attribute too",
					attributeHeaders, name)
			}
			headers[name] = attributeBytes(value)
		}
	}
	switch encoding {
	case "":
		payload = []byte(body)
	case encodingEmpty:
	case encodingBase64:
		if payload, err = base64.StdEncoding.DecodeString(body); err != nil {
			return "", nil, nil, fmt.Errorf("awssqs: the body is not what attribute %s says: %w",
				attributeEncoding, err)
		}
	default:
		return "", nil, nil, fmt.Errorf("awssqs: attribute %s is %q: want %s or %s", attributeEncoding, encoding,
			encodingBase64, encodingEmpty)
	}
	return key, payload, headers, nil
}

func attribute(value string) types.MessageAttributeValue {
	if legalText(value) {
		kind := "String"
		return types.MessageAttributeValue{DataType: &kind, StringValue: &value}
	}
	kind := "Binary"
	return types.MessageAttributeValue{DataType: &kind, BinaryValue: []byte(value)}
}

func attributeBytes(v types.MessageAttributeValue) string {
	if v.StringValue != nil {
		return *v.StringValue
	}
	return string(v.BinaryValue)
}

// attributesSize is how much the attributes add to the size of a message.
func attributesSize(attributes map[string]types.MessageAttributeValue) (bytes int) {
	for name, v := range attributes {
		bytes += len(name) + len(*v.DataType) + len(attributeBytes(v))
	}
	return bytes
}

// legalName says whether a header may be an attribute of its name.
func legalName(name string) bool {
	lower := strings.ToLower(name)
	return attributeName.MatchString(name) && !strings.Contains(name, "..") && !strings.HasPrefix(lower, "aws.") &&
		!strings.HasPrefix(lower, "amazon.") &&
		name != attributeKey && name != attributeHeaders && name != attributeEncoding
}

// legalText says whether SQS takes every character of s.
func legalText(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		switch {
		case r == '\t', r == '\n', r == '\r', r >= ' ' && r <= 0xD7FF, r >= 0xE000 && r <= 0xFFFD, r >= 0x10000:
		default:
			return false
		}
	}
	return true
}
