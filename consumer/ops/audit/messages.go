package audit

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
)

// Source re-reads messages that a consumer has acknowledged.
type Source interface {
	// Next returns some of them, in any order; none: there are no more.
	Next(ctx context.Context) ([]*consumer.Message, error)
}

// Noter is a Source that may be unable to read some messages.
type Noter interface {
	// Notes says in words what was not read, and why. Empty: everything was.
	Notes() []string
}

// MessagesConfig says how a consumer finds keys and tenants, and what it remembers.
type MessagesConfig struct {
	Source Source           // required
	Key    consumer.KeyFunc // as Config.Key of the consumer; required

	// Tenant is as Config.Tenant of the consumer. Defaults to none.
	Tenant func(msg *consumer.Message) (string, error)

	// Horizon returns a time: claims of then or earlier may have expired, and such messages are skipped. It moves while
	// keys are swept, so it is called again before a message counts as lost. Defaults to none: no claim has expired.
	Horizon func(ctx context.Context) (time.Time, error)
}

// Messages looks for messages that were acknowledged, and are neither claimed nor parked: they are lost. A message
// without a key is skipped: its dead letter has none either. A message whose dead letter was discarded is claimed.
func Messages(ctx context.Context, cfg Config, of MessagesConfig) (r Report, err error) {
	if err := cfg.Validate(); err != nil {
		return r, err
	}
	if of.Source == nil || of.Key == nil {
		return r, errors.New("audit: MessagesConfig.Source and Key are required")
	}
	horizon, err := of.horizon(ctx)
	if err != nil {
		return r, err
	}
	defer func() {
		if noter, ok := of.Source.(Noter); ok {
			notes := noter.Notes()
			r.Notes, r.Whole = append(r.Notes, notes...), r.Whole && len(notes) == 0
		}
	}()
	p := pace{time.Now(), &cfg}
	for cfg.Sample == 0 || r.Checked < cfg.Sample {
		msgs, err := of.Source.Next(ctx)
		if err != nil {
			return r, err
		}
		if len(msgs) == 0 {
			r.Whole = true
			return r, nil
		}
		for part := range slices.Chunk(msgs, page) {
			if err := cfg.messages(ctx, of, horizon, part, &r); err != nil {
				return r, err
			}
		}
		if goOn, err := p.more(ctx, r); err != nil || !goOn {
			return r, err
		}
	}
	return r, nil
}

func (of *MessagesConfig) horizon(ctx context.Context) (time.Time, error) {
	if of.Horizon == nil {
		return time.Time{}, nil
	}
	return of.Horizon(ctx)
}

// expired reports whether the claim of a message may have expired.
func expired(m *consumer.Message, horizon time.Time) bool {
	return !horizon.IsZero() && !m.Time.After(horizon)
}

func (c *Config) messages(ctx context.Context, of MessagesConfig, horizon time.Time, msgs []*consumer.Message,
	r *Report,
) error {
	var keys []dedup.Key
	var sources []*consumer.Message
	for _, m := range msgs {
		key := dedup.Key{Consumer: c.Consumer}
		var err error
		if key.ID, err = of.Key(m); err == nil && of.Tenant != nil {
			key.Tenant, err = of.Tenant(m)
		}
		if err != nil || key.Validate() != nil || expired(m, horizon) {
			r.Skipped++
			continue
		}
		keys, sources = append(keys, key), append(sources, m)
	}
	missing := make([]int, 0, len(keys))
	claimed, err := c.claimed(ctx, c.DB, keys)
	if err != nil {
		return err
	}
	for i, key := range keys {
		if !claimed[key.Hash()] {
			missing = append(missing, i)
		}
	}
	r.Checked += len(keys)
	if len(missing) == 0 {
		return nil
	}
	// A letter is removed by the transaction that claims its key. So a key that was not claimed before, and has no
	// letter now, is looked up once more.
	rest := make([]dedup.Key, len(missing))
	for n, i := range missing {
		rest[n] = keys[i]
	}
	parked, err := c.parked(ctx, c.DB, rest)
	if err != nil {
		return err
	}
	if claimed, err = c.claimed(ctx, c.DB, rest); err != nil {
		return err
	}
	if horizon, err = of.horizon(ctx); err != nil { // after the claims were read
		return err
	}
	for n, key := range rest {
		switch m := sources[missing[n]]; {
		case parked[key.Hash()] || claimed[key.Hash()]:
		case expired(m, horizon):
			r.Checked--
			r.Skipped++
		default:
			r.add(Finding{Kind: Lost, Key: key, Where: m.Position})
		}
	}
	return nil
}
