package slackhook

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/txonce/txonce/adapters/webhook/internal/strict"
)

// Config configures a Verifier.
type Config struct {
	// Secrets are signing secrets of the app. Any of them may have made a signature: configure the old and the new
	// secret while you regenerate it. Each has 24 bytes or more. Required.
	Secrets []string

	// Tolerance is how far the signed time of the attempt may be from the time of receipt, in both directions. It is
	// one hour at most: there is no way to switch the check off.
	//
	// Defaults to 5 minutes.
	Tolerance time.Duration
}

// minSecret is less than the length of a signing secret, which is 32.
const minSecret = 24

// withDefaults returns c with its defaults, or one error that names all fields at fault.
func (c Config) withDefaults() (Config, error) {
	var wrong []error
	refuse := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("slackhook: Config."+format, args...))
	}
	if len(c.Secrets) == 0 {
		refuse("Secrets is required: copy the app's signing secret, under Basic Information")
	}
	for i, secret := range c.Secrets {
		if strings.HasPrefix(secret, "xox") || strings.HasPrefix(secret, "xapp-") {
			refuse("Secrets[%d] is a token: copy the app's signing secret instead, under Basic Information", i)
		} else if err := strict.Secret(secret, minSecret); err != nil {
			refuse("Secrets[%d] %w; copy the app's whole signing secret, under Basic Information", i, err)
		}
	}
	var err error
	if c.Tolerance, err = strict.Tolerance(c.Tolerance); err != nil {
		refuse("Tolerance %w", err)
	}
	return c, errors.Join(wrong...)
}
