package claims

import (
	"cmp"
	"slices"
	"strings"
)

// Alike splits rows into parts with the same consumer and window. The parts are sorted, so that all transactions lock
// rows in the same order. Within a part the rows keep their order.
func Alike(rows []Row) [][]Row {
	alike := func(a, b *Row) bool {
		return a.Record.Key.Consumer == b.Record.Key.Consumer && a.Record.Keep() == b.Record.Keep()
	}
	mixed := false
	for i := 1; i < len(rows) && !mixed; i++ {
		mixed = !alike(&rows[0], &rows[i])
	}
	switch {
	case len(rows) == 0:
		return nil
	case !mixed:
		return [][]Row{rows}
	}
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(strings.Compare(a.Record.Key.Consumer, b.Record.Key.Consumer),
			cmp.Compare(a.Record.Keep(), b.Record.Keep()))
	})
	var parts [][]Row
	for from, to := 0, 1; to <= len(rows); to++ {
		if to == len(rows) || !alike(&rows[from], &rows[to]) {
			parts = append(parts, rows[from:to])
			from = to
		}
	}
	return parts
}
