package idtime_test

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/internal/idtime"
)

// These times must never change: they are part of keys that are stored.
func TestOf(t *testing.T) {
	const v7, v7ms = "018f4e9c-7a3b-7cc1-b1a2-3c4d5e6f7081", 0x018f4e9c7a3b
	const ulid, ulidms = "01ARZ3NDEKTSV4RRFFQ69G5FAV", 1469922850259 // the example of the ULID specification
	const at, atms = "2026-11-24T09:51:27", 1795513887000
	for _, test := range []struct {
		name, id string
		want     uint64
	}{
		{"UUIDv7", v7, v7ms},
		{"UUIDv7 in upper case", strings.ToUpper(v7), v7ms},
		{"UUIDv7 in mixed case", "018F4e9c-7a3B-7cc1-B1a2-3c4d5e6f7081", v7ms},
		{"UUIDv7, example of RFC 9562", "017F22E2-79B0-7CC3-98C4-DC0C0C07398F", 1645557742000},
		{"UUIDv7 with each variant", "018f4e9c-7a3b-7cc1-8000-000000000000", v7ms},
		{"UUIDv7 with the last variant", "018f4e9c-7a3b-7fff-bfff-ffffffffffff", v7ms},
		{"UUIDv7 behind a prefix", "evt_" + v7, v7ms},
		{"UUIDv7 behind a word", "order-" + v7, v7ms},
		{"UUIDv7 before a suffix", v7 + "/paid", v7ms},
		{"UUIDv7 between words", "order:" + v7 + "-paid", v7ms},
		{"UUIDv7 behind hexadecimal digits", "deadbeef-" + v7, v7ms},
		{"UUIDv7 as a URN", "urn:uuid:" + v7, v7ms},
		{"UUIDv7 in braces", "{" + v7 + "}", v7ms},
		{"UUIDv7 in quotes", `"` + v7 + `"`, v7ms},
		{"UUIDv7 next to UTF-8", "é" + v7 + "é", v7ms},
		{"ULID", ulid, ulidms},
		{"ULID in lower case", strings.ToLower(ulid), ulidms},
		{"ULID behind a prefix", "ord_" + ulid, ulidms},
		{"ULID before a suffix", ulid + ":paid", ulidms},
		{"TypeID", "user_01h2xcejqtf2nbrexx3vqjhp41", 0x0188bac74afa},
		{"RFC 3339", at + "Z", atms},
		{"RFC 3339 with a fraction", at + ".987654321Z/order-42", atms},
		{"RFC 3339 with an offset, which does not count", at + "+05:30", atms},
		{"RFC 3339 in lower case", strings.ToLower(at) + "z", atms},
		{"RFC 3339 behind a word", "order-42/" + at + "Z", atms},
		{"RFC 3339, a day that does not exist", "2026-02-30T00:00:00Z", 1772409600000},
		{"RFC 3339, a leap second", "2016-12-31T23:59:60Z", 1483228800000},
		{"two times, the later one first", at + "Z/" + v7, atms},
		{"two times, the later one last", v7 + "/" + at + "Z", atms},
		{"three times", ulid + "/" + v7 + "/" + strings.Replace(v7, "018", "017", 1), v7ms},
		{"the latest time that is plausible", "07ffffff-ffff-7000-8000-000000000000", 1<<43 - 1},
		{"the latest ULID that is plausible", "07ZZZZZZZZ0000000000000000", 1<<43 - 1},
		{"the latest RFC 3339 time that is plausible", "2248-09-26T15:10:22Z", 8796093022000},

		{"nothing", "", 0},
		{"a word", "order-42:paid", 0},
		{"UUIDv4", "f47ac10b-58cc-4372-a567-0e02b2c3d479", 0},
		{"UUIDv8", strings.Replace(v7, "-7cc1", "-8cc1", 1), 0},
		{"another variant", strings.Replace(v7, "-b", "-c", 1), 0},
		{"a variant below", strings.Replace(v7, "-b", "-7", 1), 0},
		{"UUIDv7 without hyphens", strings.ReplaceAll(v7, "-", ""), 0},
		{"UUIDv7 with a letter that is no digit", strings.Replace(v7, "c", "g", 1), 0},
		{"letters of the form itself", "xxxxxxxx-xxxx-7xxx-yxxx-xxxxxxxxxxxx", 0},
		{"UUIDv7 cut short", v7[:35], 0},
		{"a digit before the UUIDv7", "0" + v7, 0},
		{"a letter behind the UUIDv7", v7 + "a", 0},
		{"a hyphen is missing", strings.Replace(v7, "-", "_", 1), 0},
		{"UUIDv7 after the year 2248", "08000000-0000-7000-8000-000000000000", 0},
		{"a letter before the ULID", "x" + ulid, 0},
		{"a digit behind the ULID", ulid + "0", 0},
		{"ULID with a letter that Crockford's digits lack", ulid[:25] + "U", 0},
		{"ULID after the year 2248", "08000000000000000000000000", 0},
		{"a number of 26 digits", "12345678901234567890123456", 0},
		{"RFC 3339 without seconds", "2026-11-24T09:51Z", 0},
		{"a date", "2026-11-24", 0},
		{"RFC 3339 with a space", "2026-11-24 09:51:27", 0},
		{"RFC 3339 with a letter as digit", "2026-11-24T09:51:2xZ", 0},
		{"RFC 3339 behind a digit", "1" + at, 0},
		{"RFC 3339 before 1970", "1969-12-31T23:59:59Z", 0},
		{"the beginning of 1970", "1970-01-01T00:00:00Z", 0},
		{"RFC 3339 after the year 2248", "9999-12-31T23:59:59Z", 0},
		{"the year 0", "0000-00-00T00:00:00Z", 0},
		{"an implausible time does not hide a plausible one", "9999-12-31T23:59:59Z/08000000000000000000000000", 0},
		{"an implausible time beside a plausible one", "9999-12-31T23:59:59Z/" + v7, v7ms},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := idtime.Of(test.id); got != test.want {
				t.Errorf("Of(%q) = %d, want %d", test.id, got, test.want)
			}
		})
	}
}

// IDs of these forms, with random times and random rest, have their own time, alone and inside other text.
func TestOfRandomTimes(t *testing.T) {
	for range 2000 {
		var b [16]byte
		_, _ = rand.Read(b[:])
		ms := binary.BigEndian.Uint64(b[:8])>>16%(1<<43-2000) + 1000
		b[0], b[1], b[2], b[3], b[4], b[5] = byte(ms>>40), byte(ms>>32), byte(ms>>24), byte(ms>>16), byte(ms>>8),
			byte(ms)
		for _, id := range []string{uuidv7(b), crockford(b)} {
			for _, text := range []string{
				id, strings.ToUpper(id), "evt_" + id, id + "/" + rand.Text(),
				rand.Text() + "." + id,
			} {
				if got := idtime.Of(text); got != ms {
					t.Fatalf("Of(%q) = %d, want %d", text, got, ms)
				}
			}
		}
		text := time.UnixMilli(int64(ms)).UTC().Format(time.RFC3339Nano)
		if got := idtime.Of(rand.Text() + "/" + text); got != ms/1000*1000 {
			t.Fatalf("Of(%q) = %d, want %d", text, got, ms)
		}
		if text := rand.Text(); idtime.Of(text) != 0 {
			t.Fatalf("random text %q has a time", text)
		}
	}
}

func uuidv7(b [16]byte) string {
	b[6], b[8] = b[6]&0x0f|0x70, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// crockford returns b as a ULID: 26 digits of 5 bits, with leading zeros.
func crockford(b [16]byte) string {
	const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	hi, lo := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	var text [26]byte
	for i := 25; i >= 0; i-- {
		text[i] = digits[lo&31]
		lo, hi = lo>>5|hi<<59, hi>>5
	}
	return string(text[:])
}

func FuzzOf(f *testing.F) {
	f.Add("evt_01ARZ3NDEKTSV4RRFFQ69G5FAV")
	f.Add("018f4e9c-7a3b-7cc1-b1a2-3c4d5e6f7081/2026-11-24T09:51:27Z")
	f.Fuzz(func(t *testing.T, id string) {
		ms := idtime.Of(id)
		if ms >= 1<<43 {
			t.Errorf("Of(%q) = %d", id, ms)
		}
		for _, other := range []string{"/" + id, id + "/", strings.ToUpper(id)} {
			if isASCII(id) && idtime.Of(other) != ms {
				t.Errorf("Of(%q) = %d, Of(%q) = %d", id, ms, other, idtime.Of(other))
			}
		}
	})
}

func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r > 127 }) < 0
}
