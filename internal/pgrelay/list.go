package pgrelay

import (
	"fmt"
	"strconv"
	"strings"
)

// list scans numbers that are joined by commas: drivers differ in what they make of an array.
type list struct{ to *[]int16 }

// Scan implements sql.Scanner.
func (l list) Scan(src any) error {
	var text string
	switch src := src.(type) {
	case string:
		text = src
	case []byte:
		text = string(src)
	default:
		return fmt.Errorf("outbox: a list of numbers arrived as %T", src)
	}
	*l.to = (*l.to)[:0]
	for item := range strings.SplitSeq(text, ",") {
		if text == "" {
			break
		}
		n, err := strconv.ParseInt(item, 10, 16)
		if err != nil {
			return fmt.Errorf("outbox: a list of numbers arrived as %q: %w", text, err)
		}
		*l.to = append(*l.to, int16(n))
	}
	return nil
}
