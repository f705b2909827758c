package sim

// Shrink removes elements of all as long as fails still reports true for the rest, and returns what is left. It tries
// halves first, and single elements at last. most limits the calls of fails.
func Shrink[T any](all []T, most int, fails func(rest []T) bool) []T {
	for size, before := (len(all)+1)/2, len(all); size > 0; {
		for at := 0; at < len(all) && most > 0; {
			end := min(at+size, len(all))
			rest := append(append([]T{}, all[:at]...), all[end:]...)
			most--
			if fails(rest) {
				all = rest
			} else {
				at = end
			}
		}
		if size > 1 || len(all) == before { // single elements until none can go
			size /= 2
		}
		before = len(all)
	}
	return all
}
