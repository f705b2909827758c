package applehook

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Environment is one of the App Store's two servers. Each sends its own notifications.
type Environment string

// The environments.
const (
	Production Environment = "Production"
	Sandbox    Environment = "Sandbox"
)

// Config configures a Verifier.
type Config struct {
	// BundleID is the app's bundle identifier, such as com.example.app. Notifications for other apps are refused.
	// Required.
	BundleID string

	// AppAppleID is the app's number in the App Store: "Apple ID" under App Information in App Store Connect.
	// Notifications of the production environment must carry it. Required in Production.
	AppAppleID int64

	// Environment is the environment whose notifications are accepted. Use a Verifier and an endpoint of its own for
	// each. Required.
	Environment Environment

	// Roots are the certificates that the chain of each signature must end in. Tests use those of appletest.
	//
	// Defaults to Apple Root CA - G3, see AppleRoots.
	Roots []*x509.Certificate

	// OCSP asks the authority of each certificate whether the certificate is revoked, and compares the certificates'
	// validity with the time of the delivery instead of the signed time. A delivery is answered with 503 when the
	// authority cannot be reached, so that Apple tries again. The answer is kept for 15 minutes. A Backfill does not
	// ask, because the certificates of old notifications may have expired.
	//
	// Defaults to false: only the certificates' signatures, markers and validity are checked.
	OCSP bool

	// HTTPClient sends the OCSP requests. It follows no redirects.
	//
	// Defaults to a client of its own.
	HTTPClient *http.Client

	// MaxAge is how old a notification may be, by its signed time. Apple's last retry comes 157 hours after the first
	// attempt. A Backfill ignores it.
	//
	// Defaults to 30 days. The minimum in Production is 181 hours.
	MaxAge time.Duration

	// Deadline is how long Apple waits for a response, which Apple does not document.
	//
	// Defaults to 10 seconds.
	Deadline time.Duration

	// DropSandbox acknowledges and drops notifications of the sandbox that arrive at this endpoint in Production,
	// instead of refusing them. Apple sends a sandbox notification once, so a refusal causes no retries.
	//
	// Defaults to false: they are refused as webhook.WrongApp.
	DropSandbox bool

	// HandleTest passes notifications of type TEST to the handler.
	//
	// Defaults to false: they are verified, acknowledged and dropped.
	HandleTest bool
}

const (
	defaultMaxAge   = 30 * 24 * time.Hour
	defaultDeadline = 10 * time.Second

	// lastRetry is the time between the first attempt and the last one in Production: retries come 1, 12, 24, 48 and 72
	// hours after the attempt before.
	lastRetry = (1 + 12 + 24 + 48 + 72) * time.Hour

	// maxBundleID leaves room for the rest of the tenant in dedup.MaxTenant.
	maxBundleID = 200
)

// withDefaults returns c with its defaults, or one error that names all fields at fault.
func (c Config) withDefaults() (Config, error) {
	var wrong []error
	refuse := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("applehook: Config."+format, args...))
	}
	switch {
	case c.BundleID == "":
		refuse("BundleID is required: copy it from App Information in App Store Connect, such as com.example.app")
	case len(c.BundleID) > maxBundleID || strings.ContainsFunc(c.BundleID, notInBundleID):
		refuse("BundleID %q is not a bundle identifier: it has letters, digits, hyphens and dots, and at most %d of them", c.BundleID, maxBundleID)
	}
	switch c.Environment {
	case Production:
		if c.AppAppleID == 0 {
			refuse("AppAppleID is required in Production: copy the number \"Apple ID\" from App Information in App Store Connect")
		}
		if c.MaxAge > 0 && c.MaxAge < lastRetry+24*time.Hour {
			refuse("MaxAge is %v: want at least %v, because Apple's last retry comes %v after the first attempt",
				c.MaxAge, lastRetry+24*time.Hour, lastRetry)
		}
	case Sandbox:
		if c.DropSandbox {
			refuse("DropSandbox has no effect in Sandbox: leave it out")
		}
	case "":
		refuse("Environment is required: applehook.Production or applehook.Sandbox")
	default:
		refuse("Environment is %q: want applehook.Production or applehook.Sandbox; what Xcode signs cannot be verified",
			c.Environment)
	}
	if c.AppAppleID < 0 {
		refuse("AppAppleID is %d: copy the number \"Apple ID\" from App Information in App Store Connect", c.AppAppleID)
	}
	if c.Roots != nil && len(c.Roots) == 0 {
		refuse("Roots is empty, so that no signature could be right: leave it nil for Apple's root, or name one")
	}
	checkRoots(c.Roots, refuse)
	if c.HTTPClient != nil && !c.OCSP {
		refuse("HTTPClient has no effect without Config.OCSP: set both or neither")
	}
	if c.MaxAge < 0 {
		refuse("MaxAge is %v: want more than 0, or 0 for %v", c.MaxAge, defaultMaxAge)
	}
	if c.Deadline < 0 {
		refuse("Deadline is %v: want more than 0, or 0 for %v", c.Deadline, defaultDeadline)
	}
	if c.Roots == nil {
		roots, err := AppleRoots()
		if err != nil {
			wrong = append(wrong, err)
		}
		c.Roots = roots
	}
	c.MaxAge = cmp.Or(c.MaxAge, defaultMaxAge)
	c.Deadline = cmp.Or(c.Deadline, defaultDeadline)
	return c, errors.Join(wrong...)
}

func notInBundleID(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '.', r == '_':
		return false
	default:
		return true
	}
}
