package operator

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/sqlrows"
)

// Status implements ops.StatusReader.
func (s *Service) Status(ctx context.Context) (status ops.Status, err error) {
	st, err := s.DB.Statements(ctx)
	if err != nil {
		return status, err
	}
	err = s.DB.Read(ctx, "status", func(ctx context.Context, q Queryer) error {
		status = ops.Status{}
		return readStatus(ctx, q, st, &status)
	})
	if err != nil {
		return ops.Status{}, err
	}
	status.Outbox, err = s.Queue.Stats(ctx)
	return status, err
}

// Consumers implements ops.Searcher.
func (s *Service) Consumers(ctx context.Context) ([]ops.ConsumerStatus, error) {
	st, err := s.DB.Statements(ctx)
	if err != nil {
		return nil, err
	}
	var status ops.Status
	err = s.DB.Read(ctx, "consumers", func(ctx context.Context, q Queryer) error {
		status = ops.Status{}
		return readConsumers(ctx, q, st, &status)
	})
	return status.Consumers, err
}

func readStatus(ctx context.Context, q Queryer, st *dialect.Operator, status *ops.Status) error {
	if err := readConsumers(ctx, q, st, status); err != nil {
		return err
	}
	of := func(name string) *ops.ConsumerStatus {
		i := slices.IndexFunc(status.Consumers, func(c ops.ConsumerStatus) bool { return c.Name == name })
		// It has no letters: those that its open request has marked are gone, or it has positions and no message yet.
		if i < 0 {
			i, status.Consumers = len(status.Consumers), append(status.Consumers, ops.ConsumerStatus{Name: name})
		}
		return &status.Consumers[i]
	}
	if err := readWaiting(ctx, q, st, of); err != nil {
		return err
	}
	if err := readPositions(ctx, q, st, of); err != nil {
		return err
	}
	sortConsumers(status)
	for i := range status.Consumers {
		if err := readLetters(ctx, q, st, &status.Consumers[i]); err != nil {
			return err
		}
	}
	return readOld(ctx, q, st, status)
}

// readConsumers reads all but counts.
func readConsumers(ctx context.Context, q Queryer, st *dialect.Operator, status *ops.Status) error {
	var now, forgotten, until, passed int64
	sweep := &status.Sweep
	if err := sqlrows.Each(ctx, q, st.State, nil, func(rows *sql.Rows) error {
		return rows.Scan(&now, &forgotten, &sweep.Owner, &until, &passed, &status.Schema, &sweep.Keys)
	}); err != nil {
		return err
	}
	status.Now, sweep.Forgotten, sweep.LeaseUntil, sweep.LastPass = instant(now), instant(forgotten), instant(until),
		instant(passed)
	if passed != 0 {
		sweep.Lag = max(status.Now.Sub(sweep.LastPass), 0)
	}
	byName := map[string]*ops.ConsumerStatus{}
	of := func(name string) *ops.ConsumerStatus {
		if byName[name] == nil {
			byName[name] = &ops.ConsumerStatus{Name: name}
		}
		return byName[name]
	}
	if err := sqlrows.Each(ctx, q, st.Windows, nil, func(rows *sql.Rows) error {
		var name []byte
		var seconds, first, last int64
		err := rows.Scan(&name, &seconds, &first, &last)
		c := of(string(name))
		c.Windows = append(c.Windows, ops.Window{
			Window: time.Duration(seconds) * time.Second, FirstRun: instant(first),
			UsedUntil: instant(last),
		})
		return err
	}); err != nil {
		return err
	}
	if err := sqlrows.Each(ctx, q, st.Sources, nil, func(rows *sql.Rows) error {
		var name, source []byte
		var first int64
		err := rows.Scan(&name, &source, &first)
		c := of(string(name))
		c.Sources = append(c.Sources, ops.Source{Name: string(source), FirstRun: instant(first)})
		return err
	}); err != nil {
		return err
	}
	owners, err := letterOwners(ctx, q, st)
	if err != nil {
		return err
	}
	for _, name := range owners {
		of(name)
	}
	for _, c := range byName {
		if forgotten != 0 {
			c.Horizon = horizon(sweep.Forgotten, c.Windows)
		}
		status.Consumers = append(status.Consumers, *c)
	}
	sortConsumers(status)
	return nil
}

func sortConsumers(status *ops.Status) {
	slices.SortFunc(status.Consumers, func(a, b ops.ConsumerStatus) int { return cmp.Compare(a.Name, b.Name) })
}

// readOld lists transactions that have been open for long.
func readOld(ctx context.Context, q Queryer, st *dialect.Operator, status *ops.Status) error {
	if st.OldTransactions == "" {
		return nil
	}
	return sqlrows.Each(ctx, q, st.OldTransactions, []any{ops.OldTransaction.Microseconds()}, func(rows *sql.Rows) error {
		var h ops.Holder
		var since int64
		err := rows.Scan(&h.PID, &since, &h.State, &h.Client)
		h.Since = instant(since)
		h.Age = max(status.Now.Sub(h.Since), 0)
		status.Old = append(status.Old, h)
		return err
	})
}

// readWaiting counts the letters that wait for each consumer's RunReplays, up to ops.MaxCount+1.
func readWaiting(ctx context.Context, q Queryer, st *dialect.Operator, of func(name string) *ops.ConsumerStatus) error {
	waiting := map[string][]string{} // consumer to actions
	if err := sqlrows.Each(ctx, q, st.WaitingActions, nil, func(rows *sql.Rows) error {
		var action string
		var name []byte
		err := rows.Scan(&action, &name)
		waiting[string(name)] = append(waiting[string(name)], action)
		return err
	}); err != nil {
		return err
	}
	for name, actions := range waiting {
		c := of(name)
		for _, action := range actions {
			if err := sqlrows.Each(ctx, q, st.Waiting, []any{action, ops.MaxCount + 1 - c.Waiting}, func(rows *sql.Rows) error {
				n := 0
				err := rows.Scan(&n)
				c.Waiting += n
				return err
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

func readLetters(ctx context.Context, q Queryer, st *dialect.Operator, c *ops.ConsumerStatus) error {
	total := 0
	err := sqlrows.Each(ctx, q, st.Letters, []any{c.Name, ops.MaxCount + 1}, func(rows *sql.Rows) error {
		var l ops.LetterCount
		var oldest, latest int64
		err := rows.Scan(&l.Cause, &l.Count, &oldest, &latest)
		l.Oldest, l.Latest = instant(oldest), instant(latest)
		total += l.Count
		c.Letters = append(c.Letters, l)
		return err
	})
	for i := range c.Letters {
		c.Letters[i].Capped = total > ops.MaxCount
	}
	return err
}

func horizon(forgotten time.Time, windows []ops.Window) time.Time {
	uses := make([]driver.WindowUse, len(windows))
	for i, w := range windows {
		uses[i] = driver.WindowUse{Window: w.Window, FirstRun: w.FirstRun, UsedUntil: w.UsedUntil}
	}
	return driver.Horizon(forgotten, uses)
}
