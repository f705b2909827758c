package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// partRest is how long a key is held back at least, of which the broker's part is unavailable.
const partRest = time.Second

// call publishes c and writes down the answers. A message that has no layout is an error, and then nothing is published:
// one of its key may stand behind it.
func (b *batch) call(c *call) {
	msgs := make([]Message, len(c.sent))
	ctx, cancel := context.WithDeadline(b.work, c.until)
	defer cancel()
	composed := true
	for n, i := range c.sent {
		b.errs[i] = ErrNotTried
		var err error
		if msgs[n], err = b.compose(b.outcomes[i].Leased); err != nil {
			b.errs[i], composed = err, false
		}
	}
	if !composed || ctx.Err() != nil { // it may have stood still since begin
		return
	}
	for n, err := range c.unknown(msgs, "ended its goroutine instead of answering") {
		b.errs[c.sent[n]] = err
	}
	defer b.watch(ctx, c)()
	for n, err := range c.publish(ctx, msgs) {
		b.errs[c.sent[n]] = err
	}
}

// compose makes the message that is published.
func (b *batch) compose(m Leased) (msg Message, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("outbox: Config.HeaderFormat panicked: %v", v)
		}
	}()
	msg = m.Message
	msg.Headers = b.cfg.HeaderFormat(m)
	return msg, nil
}

// availability lets c's publisher rest when it confirmed nothing and is unavailable, and forgets that when it confirmed
// something.
func (b *batch) availability(c *call) {
	var unavailable *UnavailableError
	for _, i := range c.sent {
		switch err := b.errs[i]; {
		case err == nil:
			c.confirmed = true
		case unavailable == nil && !b.cutOff(c, err) && !errors.Is(err, ErrNotTried):
			errors.As(err, &unavailable)
		}
	}
	switch {
	case c.confirmed:
		if c.outlet.confirmed() {
			b.cfg.Logger.InfoContext(b.work, "outbox: a publisher is available again", "relay", b.cfg.Name, "publisher", fmt.Sprintf("%T", c.Publisher))
		}
	case unavailable != nil:
		var failures int
		c.rest, failures = c.outlet.unavailable(c.began, unavailable)
		if failures == 1 {
			b.cfg.Logger.WarnContext(b.work, "outbox: a publisher is unavailable and rests; nothing is counted against its messages", "relay", b.cfg.Name,
				"publisher", fmt.Sprintf("%T", c.Publisher), "error", unavailable)
		}
		if failures > 0 {
			b.trace(b.work, onResting, Event{Err: unavailable, Took: c.rest})
		}
	}
}
