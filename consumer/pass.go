package consumer

import "context"

// conclude draws the conclusions for later passes.
func (b *batch[TTx]) conclude() {
	for i := range b.items {
		it := &b.items[i]
		if it.done && !it.committed { // parked, or another call did it
			b.history.over(it.derived, false)
		}
		switch {
		case !it.probe:
		case it.failed:
			b.budget.settle(failed)
		case it.ran:
			b.budget.settle(succeeded)
		default:
			b.budget.settle(showedNothing)
		}
	}
}

// processed notes that a message was committed; ran says that its handler ran for it.
func (b *batch[TTx]) processed(it *item, ran bool) {
	b.history.over(it.derived, ran)
	if ran {
		it.ran, b.works = true, true
	}
}

// admitted reports whether the handler of items[i] may run now. Where the parking limit is spent it is deferred instead,
// unless it is the next probe.
func (b *batch[TTx]) admitted(ctx context.Context, i int) bool {
	it := &b.items[i]
	if it.probe {
		return true
	}
	probe, wait, err := b.budget.admit(ctx)
	it.probe = probe
	if err == nil {
		return true
	}
	b.cfg.Trace.emit(ctx, onPaused, Event{Consumer: b.cfg.Name, Message: it.msg, Err: err, Took: wait})
	b.retry(ctx, []int{i}, &RetryError{Err: err, After: wait, Uncounted: true})
	return false
}
