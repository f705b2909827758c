package applehook

import (
	"context"
	"fmt"

	"github.com/txonce/txonce/adapters/webhook"
)

// verified is a notification, with the payloads of the signed objects in it.
type verified struct {
	identity       identity
	notification   opened
	transaction    *opened // nil: the notification has none
	renewal        *opened
	appTransaction *opened
}

// openNested verifies the signed parts of n. Each part has certificates of its own.
func (v *Verifier) openNested(ctx context.Context, n opened, id identity, m moment) (all verified, err error) {
	all = verified{identity: id, notification: n}
	for _, part := range []struct {
		in, name string
		to       **opened
		check    func(object, identity) error
	}{
		{"data", "signedTransactionInfo", &all.transaction, v.checkTransaction},
		{"data", "signedRenewalInfo", &all.renewal, v.checkRenewal},
		{"appData", "signedAppTransactionInfo", &all.appTransaction, v.checkAppTransaction},
	} {
		name := part.in + "." + part.name
		outer, err := n.members.object(part.in)
		if err == nil && !outer.has(part.name) {
			continue
		}
		var compact string
		if err == nil {
			compact, err = outer.text(part.name)
		}
		if err != nil {
			return all, webhook.Refuse(webhook.Malformed, "applehook: %s: %w", part.in, err)
		}
		o, err := v.open(ctx, name, compact, m)
		if err != nil {
			return all, err
		}
		if err := part.check(o.members, id); err != nil {
			return all, webhook.Refuse(webhook.WrongApp, "applehook: %s: %w", name, err)
		}
		*part.to = &o
	}
	return all, nil
}

func (v *Verifier) checkTransaction(o object, id identity) error {
	if err := expect(o, "bundleId", v.cfg.BundleID); err != nil {
		return err
	}
	return expect(o, "environment", string(id.environment))
}

// checkRenewal cannot check the bundle, which renewal information does not name.
func (v *Verifier) checkRenewal(o object, id identity) error {
	return expect(o, "environment", string(id.environment))
}

func (v *Verifier) checkAppTransaction(o object, id identity) error {
	if err := expect(o, "bundleId", v.cfg.BundleID); err != nil {
		return err
	}
	if err := expect(o, "receiptType", string(id.environment)); err != nil {
		return err
	}
	app, err := o.integer("appAppleId")
	if err == nil && id.environment == Production && app != v.cfg.AppAppleID {
		err = fmt.Errorf("appAppleId is %d, not %d", app, v.cfg.AppAppleID)
	}
	return err
}

func expect(o object, name, want string) error {
	got, err := o.text(name)
	if err == nil && got != want {
		err = fmt.Errorf("%s is %.100q, not %q", name, got, want)
	}
	return err
}
