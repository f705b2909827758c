package awssqstest

import (
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

const (
	maxEntries    = 10
	maxBytes      = 1 << 20 // per message and per batch
	maxAttributes = 10
	maxVisibility = 12 * time.Hour
	dedupWindow   = 5 * time.Minute
)

var (
	entryID       = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,80}$`)
	queueName     = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,80}$`)
	attributeName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,256}$`)
	attributeType = regexp.MustCompile(`^(String|Number|Binary)(\.[a-zA-Z0-9_.-]+)?$`)
	token         = regexp.MustCompile("^[a-zA-Z0-9!\"#$%&'()*+,\\-./:;<=>?@[\\\\\\]^_`{|}~]{1,128}$")
)

// legal reports whether SQS accepts every character of s.
func legal(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		switch {
		case r == '\t', r == '\n', r == '\r', r >= ' ' && r <= 0xD7FF, r >= 0xE000 && r <= 0xFFFD, r >= 0x10000 &&
			r <= 0x10FFFF:
		default:
			return false
		}
	}
	return true
}

// checkAttributes returns how many bytes the attributes add to the message's size, or SQS's error.
func checkAttributes(attributes map[string]types.MessageAttributeValue) (bytes int, err error) {
	if len(attributes) > maxAttributes {
		return 0, invalid("Number of message attributes [" + strconv.Itoa(len(attributes)) +
			"] exceeds the allowed maximum [10].")
	}
	for name, v := range attributes {
		lower, kind := strings.ToLower(name), ""
		if v.DataType != nil {
			kind = *v.DataType
		}
		base, _, _ := strings.Cut(kind, ".")
		switch {
		case !attributeName.MatchString(name), strings.HasPrefix(name, "."), strings.HasSuffix(name, "."),
			strings.Contains(name, ".."),
			strings.HasPrefix(lower, "aws."), strings.HasPrefix(lower, "amazon."):
			return 0, invalid("The message attribute name '" + name + "' is invalid.")
		case len(kind) > 256 || !attributeType.MatchString(kind):
			return 0, invalid("The type of message attribute '" + name +
				"' is invalid. You must use only the following supported type prefixes: Binary, Number, String.")
		case base == "Binary" && (len(v.BinaryValue) == 0 || v.StringValue != nil), base != "Binary" &&
			(v.StringValue == nil || *v.StringValue == "" || v.BinaryValue != nil):
			return 0, invalid("The message attribute '" + name + "' must contain a non-empty value of its type.")
		case base != "Binary" && !legal(*v.StringValue):
			return 0, &types.InvalidMessageContents{Message: ptr("Invalid binary character was found in the message attribute '" + name + "', the set of allowed characters is #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF")}
		}
		if base == "Number" {
			if _, err := strconv.ParseFloat(*v.StringValue, 64); err != nil {
				return 0, invalid("Can't cast the value of message attribute '" + name + "' to a number.")
			}
		}
		bytes += len(name) + len(kind) + len(v.BinaryValue)
		if v.StringValue != nil {
			bytes += len(*v.StringValue)
		}
	}
	return bytes, nil
}
