package claims

import (
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
)

// Stored is a row of processed_messages. Nil pointers are NULL.
type Stored struct {
	Key                  [16]byte
	Fingerprint          *int64
	ExpiresAt            time.Time
	Result               []byte
	Consumer, Tenant, ID *string
}

// Claim converts the row to the answer for a claim of key. If the row belongs to another business key, it returns
// ErrKeyCollision.
func (s *Stored) Claim(key dedup.Key) (dedup.Claim, error) {
	if s.Consumer != nil && s.ID != nil {
		stored := dedup.Key{Consumer: *s.Consumer, ID: *s.ID}
		if s.Tenant != nil {
			stored.Tenant = *s.Tenant
		}
		if stored != key {
			return dedup.Claim{}, Collision(key, stored)
		}
	}
	c := dedup.Claim{Verdict: dedup.Duplicate, ExpiresAt: s.ExpiresAt, Result: s.Result}
	if s.Fingerprint != nil {
		c.Fingerprint = driver.FingerprintFromInt64(*s.Fingerprint)
	}
	return c, nil
}

// Expired returns what is archived of the row.
func (s *Stored) Expired() dedup.Expired {
	e := dedup.Expired{Hash: s.Key, ExpiresAt: s.ExpiresAt, Result: s.Result}
	for _, text := range []struct {
		from *string
		to   *string
	}{{s.Consumer, &e.Key.Consumer}, {s.Tenant, &e.Key.Tenant}, {s.ID, &e.Key.ID}} {
		if text.from != nil {
			*text.to = *text.from
		}
	}
	if s.Fingerprint != nil {
		e.Fingerprint = driver.FingerprintFromInt64(*s.Fingerprint)
	}
	return e
}
