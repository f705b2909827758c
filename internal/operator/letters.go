package operator

import (
	"bytes"
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/columns"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/sqlrows"
)

// defaultLimit is how many letters are listed if a filter has no limit.
const defaultLimit = 100

// ListLetters implements driver.ParkingLot.DeadLetters. statement is the DeadLetters statement of the store's dialect,
// and read runs it.
//
// There are indexes of the consumer with the time, and of the key. If the filter names neither, the newest letters of
// each consumer are read in the order of the index, and the newest of all are chosen among them. Otherwise each page
// would sort all letters.
func ListLetters(ctx context.Context, db Database, statement string, f consumer.DeadLetterFilter,
	read func(query string, args []any) ([]consumer.DeadLetter, error),
) ([]consumer.DeadLetter, error) {
	if f.Limit <= 0 {
		f.Limit = defaultLimit
	}
	st, err := db.Statements(ctx)
	if err != nil {
		return nil, err
	}
	list := func(f consumer.DeadLetterFilter, owner string) ([]consumer.DeadLetter, error) {
		chosen := letterFilter(f)
		chosen.Owner = owner
		query, args := st.Choose(statement, chosen)
		return read(query, append(args, f.Limit))
	}
	if f.Consumer != "" || f.MessageID != "" || f.ID != (consumer.DeadLetterID{}) {
		return list(f, "")
	}
	var owners []string
	err = db.Read(ctx, "list letters", func(ctx context.Context, q Queryer) (err error) {
		owners, err = letterOwners(ctx, q, st)
		return err
	})
	if err != nil {
		return nil, err
	}
	var newest []consumer.DeadLetter
	for _, owner := range owners {
		var found []consumer.DeadLetter
		if found, err = list(f, owner); err != nil {
			return nil, err
		}
		newest = append(newest, found...)
		slices.SortFunc(newest, func(a, b consumer.DeadLetter) int {
			if c := b.First.Compare(a.First); c != 0 {
				return c
			}
			return bytes.Compare(b.ID[:], a.ID[:])
		})
		if len(newest) >= f.Limit {
			clear(newest[f.Limit:]) // releases their payloads
			newest = newest[:f.Limit]
			f.Since = newest[f.Limit-1].First // older ones of other consumers are not needed
		}
	}
	return newest, nil
}

// Reach implements ops.Searcher.
func (s *Service) Reach(ctx context.Context, f consumer.DeadLetterFilter, n int) (since time.Time, err error) {
	if bare := (consumer.DeadLetterFilter{
		Consumer: f.Consumer, Cause: f.Cause, Since: f.Since, Until: f.Until,
		After: f.After, Limit: f.Limit,
	}); f == bare ||
		f.MessageID != "" || f.ID != (consumer.DeadLetterID{}) { // an index finds the letters
		return since, nil
	}
	st, err := s.DB.Statements(ctx)
	if err != nil {
		return since, err
	}
	err = s.DB.Read(ctx, "search letters", func(ctx context.Context, q Queryer) error {
		since = time.Time{}
		owners := []string{columns.Text(f.Consumer)}
		if f.Consumer == "" {
			if owners, err = letterOwners(ctx, q, st); err != nil {
				return err
			}
		}
		all := letterFilter(consumer.DeadLetterFilter{Since: f.Since, Until: f.Until, After: f.After})
		for _, all.Owner = range owners {
			query, args := st.Choose(st.LetterTime, all)
			if err := sqlrows.Each(ctx, q, query, append(args, max(n/len(owners), 1)), func(rows *sql.Rows) error {
				var first int64
				err := rows.Scan(&first)
				if t := instant(first); t.After(since) {
					since = t
				}
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	})
	return since, err
}

// Waiting implements ops.Searcher.
func (s *Service) Waiting(ctx context.Context, letters []consumer.DeadLetterID) (map[consumer.DeadLetterID]bool, error) {
	st, err := s.DB.Statements(ctx)
	if err != nil {
		return nil, err
	}
	waiting := map[consumer.DeadLetterID]bool{}
	for part := range slices.Chunk(letters, claimsAtOnce) {
		args := make([]any, len(part))
		for i := range part {
			args[i] = id(part[i])
		}
		if err := s.DB.Read(ctx, "waiting letters", func(ctx context.Context, q Queryer) error {
			return sqlrows.Each(ctx, q, st.WaitingLetters(len(part)), args, func(rows *sql.Rows) error {
				var digits string
				if err := rows.Scan(&digits); err != nil {
					return err
				}
				letter, err := parseID(digits)
				waiting[letter] = true
				return err
			})
		}); err != nil {
			return nil, err
		}
	}
	return waiting, nil
}

// letterOwners returns the consumers that have dead letters, by name.
func letterOwners(ctx context.Context, q Queryer, st *dialect.Operator) (owners []string, err error) {
	for last, more := "", true; more && err == nil; {
		more = false
		err = sqlrows.Each(ctx, q, st.NextOwner, []any{last}, func(rows *sql.Rows) error {
			more = true
			err := rows.Scan(&last)
			owners = append(owners, last)
			return err
		})
	}
	return owners, err
}

// letterFilter converts a filter for the statements. Texts are compared as they are stored.
func letterFilter(f consumer.DeadLetterFilter) dialect.LetterFilter {
	digits := func(id consumer.DeadLetterID) string {
		if id == (consumer.DeadLetterID{}) {
			return ""
		}
		return id.String()
	}
	return dialect.LetterFilter{
		ID: digits(f.ID), Consumer: columns.Text(f.Consumer), Cause: columns.Text(string(f.Cause)),
		Topic:     columns.Text(f.Topic),
		MessageID: columns.Text(f.MessageID), Tenant: columns.Text(f.Tenant), Position: columns.Text(f.Position),
		Error: columns.Text(f.Error),
		Since: micros(f.Since), Until: micros(f.Until), AfterFirst: micros(f.After.First), AfterID: f.After.ID.String(),
	}
}
