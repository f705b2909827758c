package operator

import (
	"context"
	"database/sql"
	"encoding/hex"
	"slices"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/dialect"
	"github.com/txonce/txonce/internal/sqlrows"
)

const (
	keysAtOnce   = 5000 // that EachKey reads with one statement
	claimsAtOnce = 100  // keys that Claimed asks for with one statement
)

// KeyOf implements ops.Keys.
func (s *Service) KeyOf(ctx context.Context, hash dedup.KeyHash) (key dedup.Key, found bool, err error) {
	st, err := s.DB.Statements(ctx)
	if err != nil {
		return key, false, err
	}
	err = s.DB.Read(ctx, "find a key", func(ctx context.Context, q Queryer) error {
		found = false
		for _, query := range []string{st.KeyOfClaim, st.KeyOfLetter} {
			if err := sqlrows.Each(ctx, q, query, []any{id(hash)}, func(rows *sql.Rows) error {
				k, named, err := scanKey(rows)
				if named {
					key, found = k, true
				}
				return err
			}); err != nil || found {
				return err
			}
		}
		return nil
	})
	return key, found, err
}

// EachKey implements ops.Keys.
func (s *Service) EachKey(ctx context.Context, f func(key dedup.Key) (more bool)) error {
	st, err := s.DB.Statements(ctx)
	if err != nil {
		return err
	}
	var keys []dedup.Key
	if err := s.DB.Read(ctx, "read keys", func(ctx context.Context, q Queryer) error {
		keys = nil
		return sqlrows.Each(ctx, q, st.LetterKeys, nil, func(rows *sql.Rows) error {
			key, named, err := scanKey(rows)
			if named {
				keys = append(keys, key)
			}
			return err
		})
	}); err != nil {
		return err
	}
	for after, n := (dedup.KeyHash{}), keysAtOnce; ; {
		if slices.ContainsFunc(keys, func(key dedup.Key) bool { return !f(key) }) || n < keysAtOnce {
			return nil
		}
		if keys, n, err = s.keysAfter(ctx, st, &after); err != nil {
			return err
		}
	}
}

// keysAfter reads the claims that follow after, at most keysAtOnce, and sets after to the last one. n also counts
// claims that were stored without their key (Config.Compact).
func (s *Service) keysAfter(ctx context.Context, st *dialect.Operator,
	after *dedup.KeyHash,
) (keys []dedup.Key, n int, err error) {
	last := *after
	err = s.DB.Read(ctx, "read keys", func(ctx context.Context, q Queryer) error {
		keys, n = nil, 0
		return sqlrows.Each(ctx, q, st.ClaimsAfter, []any{hex.EncodeToString(after[:]), keysAtOnce}, func(rows *sql.Rows) error {
			var digits string
			key, named, err := scanKey(rows, &digits)
			if err == nil {
				last, err = parseID(digits)
			}
			if n++; named {
				keys = append(keys, key)
			}
			return err
		})
	})
	*after = last
	return keys, n, err
}

// Claimed implements ops.Keys.
func (s *Service) Claimed(ctx context.Context, keys []dedup.Key) (map[dedup.Key]dedup.Fingerprint, error) {
	st, err := s.DB.Statements(ctx)
	if err != nil {
		return nil, err
	}
	claimed := map[dedup.Key]dedup.Fingerprint{}
	for part := range slices.Chunk(keys, claimsAtOnce) {
		args, byHash := make([]any, len(part)), map[dedup.KeyHash]dedup.Key{}
		for i, key := range part {
			args[i], byHash[key.Hash()] = id(key.Hash()), key
		}
		if err := s.DB.Read(ctx, "read claims", func(ctx context.Context, q Queryer) error {
			return sqlrows.Each(ctx, q, st.ClaimedKeys(len(part)), args, func(rows *sql.Rows) error {
				var digits string
				var fingerprint sql.NullInt64
				if err := rows.Scan(&digits, &fingerprint); err != nil {
					return err
				}
				hash, err := parseID(digits)
				if err == nil {
					claimed[byHash[hash]] = driver.FingerprintFromInt64(fingerprint.Int64) // NULL: the zero fingerprint
				}
				return err
			})
		}); err != nil {
			return nil, err
		}
	}
	return claimed, nil
}

// scanKey scans the business key at the end of a row. named is false if the row does not have it.
func scanKey(rows *sql.Rows, before ...any) (key dedup.Key, named bool, err error) {
	var consumer, tenant, name sql.NullString
	err = rows.Scan(append(before, &consumer, &tenant, &name)...)
	return dedup.Key{Consumer: consumer.String, Tenant: tenant.String, ID: name.String}, err == nil && consumer.Valid &&
		name.String != "", err
}
