package claims

import (
	"fmt"
	"slices"
	"strings"

	"github.com/txonce/txonce/dedup"
)

// maxSource is the longest source, in bytes, that every database can store.
const maxSource = 1024

// NewSources returns the sources that are not recorded yet. It fails with ErrNameTaken when sources are recorded and
// none of the given ones is among them. where qualifies the table in the error's text: `"billing".` or nothing.
func NewSources(consumer, where string, recorded, sources []string) (added []string, err error) {
	for _, s := range sources {
		switch {
		case s == "" || len(s) > maxSource:
			return nil, fmt.Errorf("consumer %q: a source of %d bytes: want 1 to %d", consumer, len(s), maxSource)
		case !slices.Contains(recorded, s) && !slices.Contains(added, s):
			added = append(added, s)
		}
	}
	if len(recorded) > 0 && len(sources) > 0 && len(added) == len(slices.Compact(slices.Sorted(slices.Values(sources)))) {
		return nil, fmt.Errorf("%w: consumer %q gets its messages from %s, and this process would take them from %s; "+
			"two services under one name take each other's messages for duplicates: give one of them another name. "+
			"Where one queue has moved or was renamed: DELETE FROM %stxonce_sources WHERE consumer = '%s', then start again",
			dedup.ErrNameTaken, consumer, strings.Join(recorded, " and "), strings.Join(sources, " and "),
			where, strings.ReplaceAll(consumer, "'", "''"))
	}
	return added, nil
}
