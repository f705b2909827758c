package cli

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
)

// What Config.Key makes of a column's text.
const (
	formText = "text"
	formJSON = "json-string"
)

// flaw says why a row has no key that can be claimed.
type flaw string

const (
	flawNull    flaw = "null"
	flawEmpty   flaw = "empty"
	flawLong    flaw = "too_long"
	flawNUL     flaw = "nul_byte"
	flawNotUTF8 flaw = "not_utf8"
	flawTenant  flaw = "tenant" // NULL, empty, too long or not UTF-8
)

// flaws are all of them, with what is said of them to people.
var flaws = []struct {
	flaw flaw
	text string
}{
	{flawNull, "a NULL key"},
	{flawEmpty, "an empty key"},
	{flawLong, "a key of more than " + strconv.Itoa(dedup.MaxID) + " bytes"},
	{flawNUL, "a key with a NUL byte"},
	{flawNotUTF8, "a key that is not valid UTF-8: convert binary columns in --query"},
	{flawTenant, "a tenant that is NULL, empty, too long or not valid UTF-8"},
}

// keyMaker makes keys of rows.
type keyMaker struct {
	forms []string
	json  consumer.KeyFunc // over the fields 0, 1, …; nil: the parts are joined as they are
}

// newKeyMaker takes one form for each of n columns, or one for all.
func newKeyMaker(n int, forms ...string) *keyMaker {
	m := &keyMaker{forms: forms}
	if !slices.Contains(forms, formJSON) {
		return m
	}
	fields := make([]string, n)
	for i := range fields {
		fields[i] = strconv.Itoa(i)
	}
	m.json = consumer.JSONKey(fields...)
	return m
}

// of returns the key of a row; empty: no message has such a key.
func (m *keyMaker) of(parts []string) string {
	if m.json == nil {
		return strings.Join(parts, "/")
	}
	object := make(map[string]any, len(parts))
	for i, part := range parts {
		object[strconv.Itoa(i)] = part
		if m.forms[min(i, len(m.forms)-1)] == formText && json.Valid([]byte(part)) {
			object[strconv.Itoa(i)] = json.RawMessage(part) // a number, or a truth value
		}
	}
	payload, err := json.Marshal(object)
	if err != nil {
		return ""
	}
	key, err := m.json(&consumer.Message{Payload: payload})
	if err != nil {
		return ""
	}
	return key
}

// flawOf says why k cannot be claimed; empty: it can.
func flawOf(k dedup.Key) flaw {
	switch {
	case k.ID == "":
		return flawEmpty
	case !utf8.ValidString(k.ID):
		return flawNotUTF8
	case strings.Contains(k.ID, "\x00"):
		return flawNUL
	case len(k.ID) > dedup.MaxID:
		return flawLong
	case k.Validate() != nil:
		return flawTenant
	}
	return ""
}

// sourceKeys are the keys of the table, in a file, and what was left out.
type sourceKeys struct {
	spool          *spool
	hashes         []uint64 // sorted, each once: parts of the hashes of all keys
	rows, leftOut  int
	oldest         time.Time // of the rows in spool; zero: unknown
	leftOutExample string
	since          time.Time // rows before it are left out; zero: none is
	unusable       map[flaw]int
	examples       map[flaw]string
}

func (k *sourceKeys) distinct() int { return len(k.hashes) }

// readSource reads all rows at once: the snapshot of the table is held for the time of reading only, and a file of
// SQLite can be written again. Each key is compared with those of sample. begin is when the window begins.
func readSource(ctx context.Context, db *Database, out *printer, f importFlags, begin time.Time,
	sample *realKeys,
) (*sourceKeys, error) {
	k := &sourceKeys{unusable: map[flaw]int{}, examples: map[flaw]string{}}
	var err error
	if k.spool, err = newSpool(); err != nil {
		return nil, err
	}
	if f.source.timeColumn != "" {
		k.since = begin.Add(-zones)
	}
	p := newProgress(out, "rows read", 0)
	defer p.end()
	parts := make([]string, 0, 1)
	maker := newKeyMaker(max(1, len(f.source.keyColumns)), f.source.forms...)
	err = f.source.each(ctx, db, out.in, func(row *sourceRow) error {
		if k.rows++; k.rows%10_000 == 0 {
			p.show(k.rows, 0)
		}
		key := dedup.Key{Consumer: f.consumer, Tenant: f.tenant}
		parts = parts[:0]
		reason := flaw("")
		for _, part := range row.parts {
			switch {
			case !part.Valid:
				reason = flawNull
			case reason == "" && !utf8.ValidString(part.String):
				reason = flawNotUTF8
			}
			parts = append(parts, part.String)
		}
		if f.source.tenantColumn != "" {
			if key.Tenant = row.tenant.String; key.Tenant == "" && reason == "" {
				reason = flawTenant
			}
		}
		if reason == "" {
			key.ID = maker.of(parts)
			reason = flawOf(key)
		}
		switch {
		case reason != "":
			if k.unusable[reason]++; k.unusable[reason] == 1 {
				k.examples[reason] = strings.Join(parts, "/")
			}
			return nil
		case !row.at.IsZero() && row.at.Before(k.since):
			if k.leftOut++; k.leftOut == 1 {
				k.leftOutExample = key.ID
			}
			sample.leftOut(key)
			return nil
		}
		if !row.at.IsZero() && (k.oldest.IsZero() || row.at.Before(k.oldest)) {
			k.oldest = row.at
		}
		sample.compare(key, parts)
		k.hashes = append(k.hashes, low(key.Hash()))
		return k.spool.add(key.Tenant, key.ID)
	})
	if err == nil {
		err = k.spool.flush()
	}
	if err == nil && k.rows == 0 {
		err = refused("%s has no rows: nothing was imported", f.source.name())
	}
	if err != nil {
		k.spool.close()
		return nil, err
	}
	slices.Sort(k.hashes)
	k.hashes = slices.Compact(k.hashes)
	return k, nil
}

// zones is how much older than the window a row must be to be left out: a time without a zone may be that of any zone.
const zones = 24 * time.Hour

// parkOlder returns how the horizon must move so that messages whose rows were left out are parked; nil: it need not.
func (k *sourceKeys) parkOlder(s ops.Status, consumer string, window time.Duration) (
	move *horizonMove, moved []horizonObject, err error,
) {
	if k.leftOut == 0 {
		return nil, nil, nil
	}
	begin := s.Now.Add(-window)
	for _, c := range s.Consumers {
		if c.Name == consumer && !c.Horizon.Before(begin.Add(-zones)) {
			return nil, []horizonObject{{Consumer: consumer, Before: jsonTime(c.Horizon), Horizon: jsonTime(c.Horizon)}}, nil
		}
	}
	m, err := horizonFor(s, consumer, begin)
	if err != nil {
		return nil, nil, err
	}
	for _, h := range horizonsAfter(s, m) {
		if h.Horizon != nil && (h.Before == nil || h.Horizon.After(*h.Before)) {
			moved = append(moved, h)
		}
	}
	return &m, moved, nil
}

// low returns the half of a hash that has no time in it.
func low(h dedup.KeyHash) (n uint64) {
	for _, b := range h[8:] {
		n = n<<8 | uint64(b)
	}
	return n
}
