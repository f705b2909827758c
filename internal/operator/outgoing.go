package operator

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/outgoing"
	"github.com/txonce/txonce/internal/sqlrows"
)

// idsAtOnce is how many IDs of a topic are looked for with one statement.
const idsAtOnce = 1000

// Outgoing implements ops.Keys. It derives the IDs of the first messages of each topic again, and of the next ones
// while it finds some.
func (s *Service) Outgoing(ctx context.Context, key dedup.Key) (out ops.Outgoing, err error) {
	st, err := s.DB.Statements(ctx)
	if err != nil {
		return out, err
	}
	topics, err := readRows(ctx, s.DB, "topics of the outbox", st.OutboxTopics, nil, func(rows *sql.Rows) (topic string, err error) {
		var text []byte
		err = rows.Scan(&text)
		return string(text), err
	})
	if err != nil {
		return out, err
	}
	if key.Tenant == "" && slices.Contains(topics, key.Consumer) {
		if out.Itself, err = s.itself(ctx, st, key); err != nil {
			return out, err
		}
	}
	seed := outgoing.Seed(key.Hash(), key.ID)
	for _, topic := range topics {
		enqueued, open := 0, 0 // at least so many were, because ordinals have no gaps
		for from := 0; ; from += idsAtOnce {
			found, err := s.outgoing(ctx, st, seed, topic, from)
			if err != nil {
				return out, err
			}
			if len(found) == 0 {
				break
			}
			for ordinal, state := range found {
				enqueued = max(enqueued, ordinal+1)
				switch state {
				case "pending":
					out.Pending++
				case "delayed":
					out.Delayed++
				case "parked":
					out.Parked++
				default: // sent
					continue
				}
				open++
			}
		}
		out.Confirmed += enqueued - open
	}
	return out, nil
}

// outgoing returns the states of the messages of one topic, by their ordinal.
func (s *Service) outgoing(ctx context.Context, st *dialect.Operator, seed, topic string,
	from int,
) (found map[int]string, err error) {
	ordinals, ids := make(map[string]int, idsAtOnce), make([]string, idsAtOnce)
	for i := range ids {
		ids[i] = outgoing.ID(seed, topic, from+i)
		ordinals[ids[i]] = from + i
	}
	err = s.states(ctx, st, topic, ids, func() { found = map[int]string{} }, func(state, id string) {
		if ordinal, ours := ordinals[id]; ours {
			found[ordinal] = state
		}
	})
	return found, err
}

// itself returns the state of the message whose topic and ID are those of key.
func (s *Service) itself(ctx context.Context, st *dialect.Operator, key dedup.Key) (found string, err error) {
	err = s.states(ctx, st, key.Consumer, []string{key.ID}, func() { found = "" }, func(state, id string) {
		if id == key.ID && state != "sent" {
			found = state
		}
	})
	return found, err
}

// states calls f for each message of the topic that has one of ids. It calls begin first, and again for another try.
func (s *Service) states(ctx context.Context, st *dialect.Operator, topic string, ids []string, begin func(),
	f func(state, id string),
) error {
	encoded, err := json.Marshal(ids)
	if err != nil {
		return fmt.Errorf("operator: %w", err)
	}
	return s.DB.Read(ctx, "find messages of the outbox", func(ctx context.Context, q Queryer) error {
		begin()
		return sqlrows.Each(ctx, q, st.OutboxIDs, []any{topic, string(encoded), topic, string(encoded), topic, string(encoded), topic, string(encoded)}, func(rows *sql.Rows) error {
			var state string
			var id []byte
			if err := rows.Scan(&state, &id); err != nil {
				return err
			}
			f(state, string(id))
			return nil
		})
	})
}
