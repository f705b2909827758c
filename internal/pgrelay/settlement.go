package pgrelay

import (
	"fmt"

	"github.com/txonce/txonce/internal/columns"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/outbox/driver"
)

// settlement has outcomes as columns, for the statements that settle them.
type settlement struct {
	shards []int16 // each once
	tokens []int64 // of shards

	sent, deferred, parked rows
	paused                 rows // returned ones whose keys are held back
	topics                 topics
}

// rows are the outcomes with one verdict.
type rows struct {
	shards   []int16
	seqs     []int64
	ids      []string
	attempts []int32
	texts    []string
	delays   []float64
	policies []int16
}

// newSettlement fails with driver.ErrLeaseLost if outcomes have two tokens of one shard: one of them is out of date.
func newSettlement(outcomes []driver.Outcome) (*settlement, error) {
	s := &settlement{}
	tokens := map[int]int64{}
	for i := range outcomes {
		o := &outcomes[i]
		if token, seen := tokens[o.Shard]; seen && token != o.Token {
			return nil, fmt.Errorf("%w: two tokens of shard %d", driver.ErrLeaseLost, o.Shard)
		} else if !seen {
			tokens[o.Shard] = o.Token
			s.shards, s.tokens = append(s.shards, int16(o.Shard)), append(s.tokens, o.Token)
		}
		switch o.Verdict {
		case driver.Returned:
			if o.Delay > 0 && o.OrderingKey != "" {
				s.paused.add(o)
			}
		case driver.Sent:
			s.sent.add(o)
		case driver.Deferred:
			s.deferred.add(o)
			if o.WholeTopic {
				s.topics.add(o)
			}
		case driver.Parked:
			s.parked.add(o)
		default:
			return nil, fmt.Errorf("outbox: settle: message %d: no verdict %d", o.Seq, o.Verdict)
		}
	}
	return s, nil
}

func (r *rows) add(o *driver.Outcome) {
	r.shards, r.seqs, r.ids = append(r.shards, int16(o.Shard)), append(r.seqs, o.Seq), append(r.ids, o.ID)
	if o.Verdict == driver.Sent {
		return
	}
	r.attempts = append(r.attempts, int32(columns.Attempts(o)))
	r.texts = append(r.texts, columns.Error(o))
	r.delays = append(r.delays, max(0, o.Delay.Seconds()))
	r.policies = append(r.policies, int16(o.ParkPolicy))
}

// topics are those whose messages are held back in a shard.
type topics struct {
	at     map[topicOfShard]int
	shards []int16
	names  []string
	lows   []int64
	texts  []string
	delays []float64
}

type topicOfShard struct {
	shard int
	topic string
}

// topicRows is how many rows of a shard DeferTopic looks at.
const topicRows = 1 << 10

func (t *topics) add(o *driver.Outcome) {
	of := topicOfShard{o.Shard, o.Topic}
	if i, seen := t.at[of]; seen {
		t.lows[i] = min(t.lows[i], o.Seq)
		return
	}
	if t.at == nil {
		t.at = map[topicOfShard]int{}
	}
	t.at[of] = len(t.names)
	t.shards, t.names, t.lows = append(t.shards, int16(o.Shard)), append(t.names, o.Topic), append(t.lows, o.Seq)
	t.texts, t.delays = append(t.texts, columns.Error(o)), append(t.delays, max(0, o.Delay.Seconds()))
}

// steps returns the statements that follow dialect.PostgresOutbox.Check in its transaction. They change nothing if
// Check has found that the session has lost a shard. If keep is true, sent messages stay in outbox_sent. follow are the
// shards where messages behind parked ones must be parked too.
func (s *settlement) steps(sql *dialect.PostgresOutbox, keep bool, follow []int) (steps []Step) {
	if r := &s.sent; len(r.seqs) > 0 {
		statement := sql.Sent
		if keep {
			statement = sql.Keep
		}
		steps = append(steps, Step{SQL: statement, Args: []any{r.shards, r.seqs, r.ids}})
	}
	if r := &s.parked; len(r.seqs) > 0 {
		steps = append(
			steps, Step{SQL: sql.Park, Args: []any{r.shards, r.seqs, r.ids, r.attempts, r.texts, r.policies}},
			Step{SQL: sql.HoldParked, Args: []any{r.seqs}},
		)
	}
	if r := &s.deferred; len(r.seqs) > 0 {
		steps = append(
			steps, Step{SQL: sql.Defer, Args: []any{r.shards, r.seqs, r.ids, r.attempts, r.texts, r.delays}},
			Step{SQL: sql.HoldDeferred, Args: []any{r.shards, r.seqs, r.ids, r.delays}},
		)
	}
	if t := &s.topics; len(t.names) > 0 {
		steps = append(steps, Step{SQL: sql.DeferTopic, Args: []any{t.shards, t.names, t.lows, t.texts, t.delays, topicRows}})
	}
	if r := &s.paused; len(r.seqs) > 0 {
		steps = append(steps, Step{SQL: sql.HoldDeferred, Args: []any{r.shards, r.seqs, r.ids, r.delays}})
	}
	if len(follow) > 0 {
		steps = append(steps, followIn(sql, follow))
	}
	return steps
}

const (
	followRows = 2 << 10 // how many of a shard's first rows Follow looks at
	followMost = 5000    // how many messages it parks at most
)

// followIn returns the statement that parks messages behind parked ones. It follows Check, like those of
// settlement.steps.
func followIn[N int | int16](sql *dialect.PostgresOutbox, shards []N) Step {
	return Step{SQL: sql.Follow, Args: []any{shards, followRows, followMost}}
}
