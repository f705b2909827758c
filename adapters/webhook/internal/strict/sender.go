package strict

import (
	"fmt"
	"slices"
)

// Sender returns an error if a package of its own makes keys with this name of a sender. An event of one could then be
// a duplicate of an event of the other.
func Sender(name string) error {
	if slices.Contains([]string{"apple", "stripe", "github", "shopify", "slack", "twilio", "sns", "pubsub"}, name) {
		return fmt.Errorf("is %q, and package %[1]shook makes keys with that name: use that package, or choose another name", name)
	}
	return nil
}
