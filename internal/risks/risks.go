// Package risks is the type of the names in a config's field AcceptedRisks.
//
// An adapter refuses settings that can lose messages or effects. A user who wants such a setting nevertheless accepts
// its risk by name.
package risks

import (
	"fmt"
	"slices"
)

// Risk names a setting that an adapter refuses because it can lose messages or effects. A config's field AcceptedRisks
// lists those that its user accepts.
type Risk string

// Check returns an error if accepted contains a risk that is none of known, which is a mistake of spelling or of place.
func Check(accepted []Risk, known ...Risk) error {
	for _, r := range accepted {
		if !slices.Contains(known, r) {
			return fmt.Errorf("AcceptedRisks contains %q; the risks that can be accepted here are %q", r, known)
		}
	}
	return nil
}
