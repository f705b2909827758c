package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops/audit"
	"github.com/txonce/txonce/dedup"
)

// realFlags say where the keys of real messages are.
type realFlags struct {
	file, group, topic, key, tenantHeader string
	addresses                             []string // of the brokers
	sample, acceptMissing                 int
	unchecked                             bool
}

func (f *realFlags) add(c *cobra.Command, sources []Source) {
	flags := c.Flags()
	flags.StringVar(&f.file, "keys-file", "", "a `file` with what Config.Key has returned for messages that the old code has processed, a key in each line; with --tenant-column the tenant, a tab, and the key")
	for i, s := range sources {
		if s.Reread != nil {
			flags.StringVar(&f.addresses[i], s.Flag, "", "instead of --keys-file: the address as for check; needs --group, --topic and --key")
		}
	}
	flags.StringVar(&f.group, "group", "", "the consumer group of the old code: it has processed the messages before its committed offsets")
	flags.StringVar(&f.topic, "topic", "", "the topic to read")
	flags.StringVar(&f.key, "key", "", "where the business key of a message is, as in Config.Key: header:NAME, json:FIELD (a path such as order.id) or id")
	flags.StringVar(&f.tenantHeader, "tenant-header", "", "the header with the tenant of a message")
	flags.IntVar(&f.sample, "sample", 1000, "how many messages of the topic to read")
	flags.IntVar(&f.acceptMissing, "accept-missing", 0, "go on although so many of the real keys, or fewer, are not in the table: you know why")
	flags.BoolVar(&f.unchecked, "unchecked", false, "compare nothing: keys in another form than Config.Key returns protect nothing, and nobody notices")
}

func (f *realFlags) check() error {
	brokers := 0
	for _, address := range f.addresses {
		if address != "" {
			brokers++
		}
	}
	switch {
	case f.unchecked && (f.file != "" || brokers > 0):
		return Usage(errors.New("--unchecked compares nothing: leave out --keys-file and the broker"))
	case f.unchecked:
		return nil
	case f.file == "" && brokers == 0:
		return Usage(errors.New("nothing to compare the keys with. Give --keys-file with what Config.Key returns for messages that the old code has processed, " +
			"or read such messages with --kafka, --group, --topic and --key. --unchecked imports without"))
	case brokers > 1 || f.file != "" && brokers > 0:
		return Usage(errors.New("want one of --keys-file and the address of a broker"))
	case brokers > 0 && (f.group == "" || f.topic == "" || f.key == ""):
		return Usage(errors.New("the address of a broker needs --group, --topic and --key"))
	case f.sample < 1:
		return Usage(fmt.Errorf("--sample %d: want 1 or more", f.sample))
	case f.acceptMissing < 0:
		return Usage(fmt.Errorf("--accept-missing %d is negative", f.acceptMissing))
	}
	return nil
}

// realKey is the key of a message that the old code has processed.
type realKey struct {
	key   dedup.Key
	at    time.Time // of the message; zero: unknown
	where string    // its position; empty: unknown
	state realState
	hint  string // how a row of the table would have the key
}

type realState int

const (
	notFound realState = iota
	foundOld           // in a row that is left out because of its time
	found
)

// realKeys are those of the sample. A nil one has none.
type realKeys struct {
	keys  []*realKey // each once
	exact map[dedup.Key]*realKey
	ids   map[string][]*realKey // by ID, with any tenant
	forms []*keyMaker           // that were not chosen
	names []string              // of forms
}

func newRealKeys(f sourceFlags) *realKeys {
	r := &realKeys{exact: map[dedup.Key]*realKey{}, ids: map[string][]*realKey{}}
	for _, form := range []string{formText, formJSON} {
		if len(f.forms) != 1 || f.forms[0] != form {
			r.forms = append(r.forms, newKeyMaker(max(1, len(f.keyColumns)), form))
			r.names = append(r.names, form)
		}
	}
	return r
}

func (r *realKeys) add(key dedup.Key, at time.Time, where string) {
	if r.exact[key] == nil {
		k := &realKey{key: key, at: at, where: where}
		r.keys, r.exact[key] = append(r.keys, k), k
		r.ids[key.ID] = append(r.ids[key.ID], k)
	}
}

// compare looks whether a row of the table has one of the keys, also in another form.
func (r *realKeys) compare(key dedup.Key, parts []string) {
	if r == nil {
		return
	}
	if k := r.exact[key]; k != nil {
		k.state = found
		return
	}
	r.suggest(key.ID, "under another tenant: see --tenant, --tenant-column and --tenant-header")
	for i, form := range r.forms {
		r.suggest(form.of(parts), "with --key-form "+r.names[i])
	}
	r.suggest(strings.TrimSpace(key.ID), "without the space around it: trim it in --query")
	r.suggest(strings.ToLower(key.ID), "in lower case: convert it in --query")
	r.suggest(strings.ToUpper(key.ID), "in upper case: convert it in --query")
}

func (r *realKeys) suggest(id, hint string) {
	for _, k := range r.ids[id] {
		if k.hint == "" {
			k.hint = hint
		}
	}
}

// leftOut notes that the row of a key is too old.
func (r *realKeys) leftOut(key dedup.Key) {
	if r == nil {
		return
	}
	if k := r.exact[key]; k != nil && k.state == notFound {
		k.state = foundOld
	}
}

// realKeys reads the sample.
func (a *app) realKeys(ctx context.Context, f importFlags) (*realKeys, error) {
	if f.real.unchecked {
		return nil, nil
	}
	r := newRealKeys(f.source)
	if f.real.file != "" {
		return r, r.readFile(f)
	}
	key, err := keyFunc(f.real.key)
	if err != nil {
		return nil, err
	}
	for i, s := range a.cfg.Sources {
		if f.real.addresses[i] == "" {
			continue
		}
		source, done, err := s.Reread(ctx, f.real.addresses[i], f.real.group, f.real.topic)
		if err != nil {
			return nil, err
		}
		defer done()
		if err := r.readMessages(ctx, f, source, key); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *realKeys) readFile(f importFlags) error {
	in := sourceFlags{file: f.real.file}
	if f.real.file == "-" {
		return Usage(errors.New("--keys-file must be a file"))
	}
	n := 0
	err := in.eachLine(nil, func(row *sourceRow) error {
		n++
		key := dedup.Key{Consumer: f.consumer, Tenant: f.tenant, ID: row.parts[0].String}
		if f.source.tenantColumn != "" {
			var tabbed bool
			if key.Tenant, key.ID, tabbed = strings.Cut(key.ID, "\t"); !tabbed {
				return Usage(fmt.Errorf("--keys-file %s, line %d: want the tenant, a tab, and the key", f.real.file, n))
			}
		}
		if err := key.Validate(); err != nil {
			return Usage(fmt.Errorf("--keys-file %s, line %d is not a key: %w", f.real.file, n, err))
		}
		r.add(key, time.Time{}, "")
		return nil
	})
	if err == nil && n == 0 {
		err = Usage(fmt.Errorf("--keys-file %s is empty", f.real.file))
	}
	return err
}

func (r *realKeys) readMessages(ctx context.Context, f importFlags, source audit.Source, of consumer.KeyFunc) error {
	without, n := error(nil), 0
	for n < f.real.sample {
		msgs, err := source.Next(ctx)
		if err != nil {
			return err
		}
		if len(msgs) == 0 {
			break
		}
		for _, m := range msgs[:min(len(msgs), f.real.sample-n)] {
			n++
			key := dedup.Key{Consumer: f.consumer, Tenant: f.tenant}
			if key.ID, err = of(m); err == nil {
				if f.real.tenantHeader != "" {
					key.Tenant = m.Headers[f.real.tenantHeader]
				}
				err = key.Validate()
			}
			if err != nil { // txonce parks such a message
				without = fmt.Errorf("%s: %w", m.Position, err)
				continue
			}
			r.add(key, m.Time, m.Position)
		}
	}
	switch noted, _ := source.(audit.Noter); {
	case len(r.keys) > 0:
		return nil
	case without != nil:
		return refused("no message has a key by --key %s; %w", f.real.key, without)
	case noted != nil && len(noted.Notes()) > 0:
		return refused("no message to compare with: %s", strings.Join(noted.Notes(), "; "))
	}
	return refused("no message to compare with: topic %s has none before the committed offsets of group %s", f.real.topic, f.real.group)
}
