package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/txonce/txonce/dedup"
)

// compared is the result of comparing keys of real messages with the table.
type compared struct {
	Real    int `json:"real"`    // keys of the sample
	Found   int `json:"found"`   // in the table
	Claimed int `json:"claimed"` // not in the table, but processed by the consumer
	Skipped int `json:"skipped"` // of messages that are older than all rows that are imported
	Missing int `json:"missing"`
}

// examplesShown is how many missing keys an error names.
const examplesShown = 3

// compare refuses the import if the table does not have the keys of real messages.
func (a *app) compare(ctx context.Context, db *Database, out *printer, f importFlags, keys *sourceKeys,
	sample *realKeys,
) (*compared, error) {
	if sample == nil {
		out.notef("txonce: --unchecked: nothing is compared. If Config.Key returns other keys than these, each message that is delivered again is handled again, and nothing notices it.\n")
		return nil, nil
	}
	c := &compared{Real: len(sample.keys)}
	var missing []*realKey
	for _, k := range sample.keys {
		switch {
		case k.state == found:
			c.Found++
		case k.state == foundOld, !k.at.IsZero() && (k.at.Before(keys.since) || k.at.Before(keys.oldest)):
			c.Skipped++
		default:
			missing = append(missing, k)
		}
	}
	asked := make([]dedup.Key, len(missing))
	for i, k := range missing {
		asked[i] = k.key
	}
	claimed, err := limitedKeys{db.Store.Operator().Keys(), a}.Claimed(ctx, asked)
	if err != nil {
		return nil, err
	}
	var rest []*realKey
	for _, k := range missing {
		if _, done := claimed[k.key]; done {
			c.Claimed++
			continue
		}
		rest = append(rest, k)
	}
	c.Missing = len(rest)
	switch {
	case c.Found == 0 && len(rest) == 0:
		return nil, refused("nothing was imported: none of %s can show whether the keys of %s are right: %d are older than its rows, and the consumer has processed %d itself. Give keys of messages that the old code has processed",
			count(c.Real, "real key"), f.source.name(), c.Skipped, c.Claimed)
	case c.Found == 0:
		return nil, refused("nothing was imported: none of %s is among the %s of %s, so each of these messages would be handled again when it is delivered again. %s",
			count(c.Real, "real key"), count(keys.distinct(), "key"), f.source.name(), sideBySide(out, keys, rest))
	case len(rest) > f.real.acceptMissing:
		return nil, refused("nothing was imported: %d of %s not among the %s of %s, so each of these messages would be handled again when it is delivered again. %s. "+
			"If you know why these are missing, and that it does no harm: --accept-missing %[1]d", len(rest), counted(c.Real, "real key"),
			count(keys.distinct(), "key"), f.source.name(), strings.TrimSuffix(sideBySide(out, keys, rest), "."))
	}
	return c, nil
}

// sideBySide shows some missing keys, each beside the key of the table that is most like it, and what would help.
func sideBySide(out *printer, keys *sourceKeys, missing []*realKey) string {
	var b strings.Builder
	for i, k := range missing[:min(len(missing), examplesShown)] {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "a real key: %s", shown(out, k.key))
		if k.where != "" {
			fmt.Fprintf(&b, " (of the message at %s)", out.keys.Position(k.where, k.key.ID))
		}
		fmt.Fprintf(&b, ", and a key of the table: %s", shown(out, nearest(keys, k.key)))
	}
	hints := map[string]int{}
	best := ""
	for _, k := range missing {
		if k.hint == "" {
			continue
		}
		if hints[k.hint]++; hints[k.hint] > hints[best] {
			best = k.hint
		}
	}
	text := b.String()
	text = strings.ToUpper(text[:1]) + text[1:]
	if best == "" {
		return text + ". The keys of the table must be exactly what Config.Key returns: convert them with --key-form or --query"
	}
	return fmt.Sprintf("%s. The table has %d of the %d %s", text, hints[best], len(missing), best)
}

// shown returns a key between quotes, without escapes, because quotes belong to some keys.
func shown(out *printer, k dedup.Key) string {
	text := "'" + out.key(k.ID) + "'"
	if k.Tenant != "" {
		text += " of tenant '" + k.Tenant + "'"
	}
	return Harmless(text) // it cuts off spaces around a text, so it gets the quotes too
}

// nearest returns the first key of the table that contains the text of want, or is contained in it, or else the first.
func nearest(keys *sourceKeys, want dedup.Key) (best dedup.Key) {
	n := 0
	of := strings.ToLower(strings.Trim(want.ID, `" `))
	_ = keys.spool.each(func(tenant, id string) error { // an error leaves an example out, and nothing else
		key := dedup.Key{Tenant: tenant, ID: id}
		if n++; n == 1 {
			best = key
		}
		have := strings.ToLower(strings.Trim(id, `" `))
		if have == of || len(have) > 3 && strings.Contains(of, have) || len(of) > 3 && strings.Contains(have, of) {
			best = key
			return errEnough
		}
		return nil
	})
	return best
}

// printHorizons says what becomes of messages whose rows were left out.
func printHorizons(out *printer, consumer string, o imported) {
	for _, h := range o.Horizons {
		from := "is"
		if o.DryRun {
			from = "would be"
		}
		if h.Before != nil && h.Before.Equal(*h.Horizon) {
			from = "is already"
		}
		note := ""
		if h.Consumer == consumer {
			note = ": a message of this time or earlier that has no claim is parked as unprovable, and not handled; one without a time is handled (--no-time imports all rows instead)"
		}
		out.field("horizon", "of %s %s %s%s", Harmless(h.Consumer), from, instant(*h.Horizon), note)
	}
}

// printImported says what was done.
func printImported(out *printer, f importFlags, keys *sourceKeys, o imported) {
	out.field("source", "%s: %s", f.source.name(), count(o.Rows, "row"))
	out.field("keys", "%d", o.Keys)
	if o.Repeated > 0 {
		out.field("repeated", "%s: an earlier row has the same key", count(o.Repeated, "row"))
	}
	if o.LeftOut > 0 {
		out.field("left out", "%s of before %s, such as '%s': older than the window and a day", count(o.LeftOut, "row"),
			instant(keys.since), out.key(keys.leftOutExample))
		printHorizons(out, f.consumer, o)
	}
	for _, kind := range flaws {
		if n := o.Unusable[kind.flaw]; n > 0 {
			example := ""
			if text := keys.examples[kind.flaw]; text != "" {
				example = ", such as '" + shorten(out.key(text), cellWidth) + "'"
			}
			out.field("not usable", "%s: %s%s", count(n, "row"), kind.text, example)
		}
	}
	switch c := o.Compared; {
	case c == nil:
		out.field("compared", "nothing (--unchecked)")
	default:
		text := fmt.Sprintf("%s: %d in the table, %d missing", count(c.Real, "real key"), c.Found, c.Missing)
		if c.Claimed > 0 {
			text += fmt.Sprintf(", %d processed by the consumer", c.Claimed)
		}
		if c.Skipped > 0 {
			text += fmt.Sprintf(", %d older than the rows that are imported", c.Skipped)
		}
		out.field("compared", "%s", text)
	}
	what := "imported"
	if o.DryRun {
		what = "to import"
	}
	out.field(what, "%d, and %d have a claim already", o.Imported, o.Claimed)
	if o.Busy > 0 {
		out.field("busy", "%s", count(o.Busy, "key"))
	}
}
