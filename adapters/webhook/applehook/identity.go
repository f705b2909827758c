package applehook

import (
	"strings"

	"github.com/txonce/txonce/adapters/webhook"
)

// identity says which app and environment a notification is for.
type identity struct {
	bundleID    string
	appAppleID  int64
	environment Environment
}

// identityOf reads the identity from the first of the objects that may have it.
func identityOf(n object) (id identity, err error) {
	for _, name := range []string{"data", "summary", "externalPurchaseToken", "appData"} {
		if !n.has(name) {
			continue
		}
		inner, err := n.object(name)
		if err != nil {
			return id, webhook.Refuse(webhook.Malformed, "applehook: %w", err)
		}
		return identityIn(name, inner)
	}
	return id, webhook.Refuse(webhook.WrongApp, "applehook: the notification names no app")
}

func identityIn(name string, inner object) (id identity, err error) {
	malformed := func(err error) (identity, error) {
		return id, webhook.Refuse(webhook.Malformed, "applehook: %s: %w", name, err)
	}
	if id.bundleID, err = inner.text("bundleId"); err != nil {
		return malformed(err)
	}
	if id.appAppleID, err = inner.integer("appAppleId"); err != nil {
		return malformed(err)
	}
	environment, err := inner.text("environment")
	if err != nil {
		return malformed(err)
	}
	id.environment = Environment(environment)
	if name == "externalPurchaseToken" { // it has no environment
		token, err := inner.text("externalPurchaseId")
		if err != nil {
			return malformed(err)
		}
		id.environment = Production
		if strings.HasPrefix(token, "SANDBOX") {
			id.environment = Sandbox
		}
	}
	return id, nil
}

// dropsAsSandbox reports whether Config.DropSandbox applies. A sandbox notification may lack the app's number.
func (v *Verifier) dropsAsSandbox(id identity) bool {
	return v.cfg.DropSandbox && id.environment == Sandbox && id.bundleID == v.cfg.BundleID
}

// checkIdentity refuses a notification for another app or environment.
func (v *Verifier) checkIdentity(id identity) error {
	switch {
	case id.bundleID != v.cfg.BundleID:
		return webhook.Refuse(webhook.WrongApp, "applehook: the notification is for the bundle %.100q, not %q",
			id.bundleID, v.cfg.BundleID)
	case v.dropsAsSandbox(id):
		return nil
	case v.cfg.Environment == Production && id.environment == Production && id.appAppleID != v.cfg.AppAppleID:
		return webhook.Refuse(webhook.WrongApp, "applehook: the notification is for the app %d, not %d", id.appAppleID,
			v.cfg.AppAppleID)
	case id.environment != v.cfg.Environment:
		return webhook.Refuse(webhook.WrongApp, "applehook: the notification is from the environment %.20q, not %q",
			id.environment, v.cfg.Environment)
	}
	return nil
}
