package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/txonce/txonce/consumer/ops"
)

// hasRun refuses a name that no consumer of the database has: with a typo nothing would be found, and nothing would
// seem to be wrong. A consumer that has a window, a source or a dead letter is known. An empty name stands for all
// consumers.
func (a *app) hasRun(ctx context.Context, db *Database, name string) error {
	limited, cancel := a.limit(ctx)
	defer cancel()
	known, err := db.Store.Operator().Keys().Consumers(limited)
	if err != nil || name == "" || slices.ContainsFunc(known,
		func(c ops.ConsumerStatus) bool { return c.Name == name }) {
		return err
	}
	return noConsumer(name, known)
}

// namesShown is up to how many names of consumers an error lists.
const namesShown = 10

func noConsumer(name string, known []ops.ConsumerStatus) error {
	hint := "none has yet"
	switch {
	case len(known) > namesShown:
		hint = "txonce status lists those that have"
	case len(known) > 0:
		names := make([]string, len(known))
		for i, c := range known {
			names[i] = Harmless(c.Name)
		}
		hint = "these have: " + strings.Join(names, ", ")
	}
	return refused("no consumer %q has run on this database; %s", name, hint)
}
