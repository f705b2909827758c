package cli

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
)

// whichKey returns the key that the arguments and flags name. For the position of a dead letter, opts gets the letter's
// time and fingerprint, where it has none, so that the verdict is about that message.
func (a *app) whichKey(ctx context.Context, db *Database, out *printer, f explainFlags, args []string,
	opts *ops.ExplainOptions,
) (key dedup.Key, err error) {
	name := ""
	if len(args) > 0 {
		name = args[0]
	}
	if len(args) == 2 {
		key = dedup.Key{Consumer: name, Tenant: f.tenant, ID: args[1]}
		if err := key.Validate(); err != nil {
			return key, Usage(err)
		}
	}
	if err := a.hasRun(ctx, db, name); err != nil {
		return key, err
	}
	switch {
	case f.position != "":
		return a.keyAt(ctx, db, name, f, opts)
	case f.hash != "":
		return a.keyWithHash(ctx, db, out, name, f)
	}
	return key, nil
}

// keyAt returns the key of the dead letter from a position.
func (a *app) keyAt(ctx context.Context, db *Database, name string, f explainFlags,
	opts *ops.ExplainOptions,
) (key dedup.Key, err error) {
	ctx, cancel := a.limit(ctx)
	defer cancel()
	found, err := db.Store.Operator().DeadLetters(ctx,
		consumer.DeadLetterFilter{Consumer: name, Tenant: f.tenant, Position: f.position, Limit: 2})
	switch {
	case err != nil:
		return key, err
	case len(found) == 0:
		return key, refused("there is no dead letter from %s: the message was processed or discarded, or it was parked again from another position; name its key", f.position)
	case len(found) > 1 && found[0].Record.Key != found[1].Record.Key:
		return key, refused("there are several dead letters from %s, of %s and of %s: name the consumer, or the key",
			f.position,
			found[0].Record.Key.Consumer, found[1].Record.Key.Consumer)
	case found[0].Record.Key.ID == "":
		return key, refused("the message from %s has no usable key, so it was never claimed: txonce dead-letters show %s", f.position, found[0].ID)
	}
	rec := found[0].Record
	opts.Time, opts.Fingerprint = cmp.Or(opts.Time, rec.Time), cmp.Or(opts.Fingerprint, rec.Fingerprint)
	return rec.Key, nil
}

// keyWithHash returns the key with the digits of --hash.
func (a *app) keyWithHash(ctx context.Context, db *Database, out *printer, name string,
	f explainFlags,
) (key dedup.Key, err error) {
	digits := strings.ToLower(strings.ReplaceAll(f.hash, "-", "")) // PostgreSQL shows keys as UUIDs
	b, err := hex.DecodeString(digits)
	found := false
	fits := func(key dedup.Key) bool {
		return (name == "" || key.Consumer == name) && (f.tenant == "" || key.Tenant == f.tenant)
	}
	switch {
	case err != nil || len(b) != len(dedup.KeyHash{}) && len(b) != hiddenBytes:
		return key, Usage(fmt.Errorf("--hash %q: want the 16 digits of a hidden key, or the 32 digits of a row's key",
			f.hash))
	case len(b) == len(dedup.KeyHash{}):
		limited, cancel := a.limit(ctx)
		defer cancel()
		key, found, err = db.Store.Operator().Keys().KeyOf(limited, dedup.KeyHash(b))
		found = found && fits(key)
	default:
		hide := a.secret()
		if len(hide.Secret) == 0 {
			return key, Usage(fmt.Errorf("--hash needs the secret that has hidden the key, in TXONCE_KEY_SECRET"))
		}
		p, n := newProgress(out, "keys compared", 0), 0
		err = db.Store.Operator().Keys().EachKey(ctx, func(k dedup.Key) bool {
			if n++; n%10_000 == 0 {
				p.show(n, 0)
			}
			if fits(k) && hide.Key(k.ID) == digits {
				key, found = k, true
			}
			return !found
		})
		p.end()
	}
	if err == nil && !found {
		err = refused("no claim and no dead letter has a key with the hash %s: it was forgotten, or never committed, or is of a store with Config.Compact", f.hash)
	}
	return key, err
}

// hiddenBytes is how long the hashes of ops.HideKeys are.
const hiddenBytes = 8

// isUnknown reports whether the database knows nothing of the key.
func isUnknown(e ops.Explanation) bool {
	return e.Verdict == ops.First && len(e.Letters) == 0 && len(e.Discarded) == 0
}

// withTenant explains a key that is unknown as the tenant and the ID that lists of letters join by a slash, such as
// stripe/live/evt_1. It returns e if no such key is known either.
func withTenant(ctx context.Context, db *Database, e ops.Explanation,
	opts ops.ExplainOptions,
) (ops.Explanation, error) {
	const mostTenants = 4 // Stripe's have three parts
	for i, from := 0, 0; i < mostTenants && isUnknown(e); i++ {
		at := strings.IndexByte(e.Key.ID[from:], '/')
		if at < 0 {
			break
		}
		from += at + 1
		key := dedup.Key{Consumer: e.Key.Consumer, Tenant: e.Key.ID[:from-1], ID: e.Key.ID[from:]}
		if key.Validate() != nil {
			continue
		}
		other, err := ops.Explain(ctx, db.Store.Operator(), key, opts)
		if err != nil || !isUnknown(other) {
			return other, err
		}
	}
	return e, nil
}
