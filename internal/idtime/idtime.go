// Package idtime finds the time that an ID contains. Keys begin with it (dedup.Key.Hash), and so do the IDs that a
// handler's outgoing messages get (driver.WithScope). What Of returns for an ID must never change, because the ID would
// get another key.
package idtime

import (
	"strings"
	"time"
)

// end is the first time, in the year 2248, that is not taken for one. It tells times from random text: an ID of
// crypto/rand.Text may look like a ULID, but its first character is never a 0.
const end = 1 << 43

// Of returns the latest time that id contains, in milliseconds since 1970, and 0 if it contains none. A time is a UUID
// of version 7, a ULID, or the beginning of an RFC 3339 time, such as 2026-11-24T09:51:27. What follows the seconds
// does not count, so the offset does not either. Other characters may surround a time, but a letter or a digit next to
// a UUID or a ULID makes it another word. The case of letters does not count.
func Of(id string) (latest uint64) {
	for i := 0; i < len(id); i++ {
		word := 0
		for i+word < len(id) && alphanumeric(id[i+word]) {
			word++
		}
		var ms uint64
		switch word { // the lengths of a ULID, of the first part of a UUID, and of a year
		case 26:
			ms = ulid(id[i : i+word])
		case 8:
			ms = UUID(id[i:])
		case 4:
			ms = rfc3339(id[i:])
		}
		if ms < end {
			latest = max(latest, ms)
		}
		i += word
	}
	return latest
}

func alphanumeric(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// UUID returns the time of the UUID of version 7 that s begins with, in milliseconds since 1970, and 0 if it begins
// with none.
func UUID(s string) (ms uint64) {
	const form = "xxxxxxxx-xxxx-7xxx-yxxx-xxxxxxxxxxxx"
	if len(s) < len(form) || len(s) > len(form) && alphanumeric(s[len(form)]) {
		return 0
	}
	for i := range len(form) {
		digit := strings.IndexByte("0123456789abcdef", lower(s[i]))
		switch form[i] {
		case 'x':
			if digit < 0 {
				return 0
			}
		case 'y':
			if digit < 8 || digit > 11 {
				return 0
			}
		default:
			if s[i] != form[i] {
				return 0
			}
		}
		if i < len("xxxxxxxx-xxxx") && digit >= 0 {
			ms = ms<<4 | uint64(digit)
		}
	}
	return ms
}

// ulid returns the time of the ULID s, and 0 if s is none. TypeIDs end with the same form.
func ulid(s string) (ms uint64) {
	for i := range len(s) {
		digit := strings.IndexByte("0123456789abcdefghjkmnpqrstvwxyz", lower(s[i]))
		if digit < 0 {
			return 0
		}
		if i < 10 {
			ms = ms<<5 | uint64(digit)
		}
	}
	return ms
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// rfc3339 returns the time that s begins with, as if it were in UTC, and 0 if s begins with none.
func rfc3339(s string) (ms uint64) {
	const form = "0000-00-00T00:00:00"
	if len(s) < len(form) {
		return 0
	}
	var fields [6]int
	n := 0
	for i := range len(form) {
		switch digit := s[i] - '0'; {
		case form[i] != '0':
			if s[i] != form[i] && (form[i] != 'T' || s[i] != 't') {
				return 0
			}
			n++
		case digit > 9:
			return 0
		default:
			fields[n] = 10*fields[n] + int(digit)
		}
	}
	at := time.Date(fields[0], time.Month(fields[1]), fields[2], fields[3], fields[4], fields[5], 0, time.UTC)
	return uint64(at.UnixMilli()) // a time before 1970 becomes one after end
}
