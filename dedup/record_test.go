package dedup_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
)

// These values must never change, because they are compared with rows that another version wrote.
func TestFingerprintOf(t *testing.T) {
	for _, test := range []struct{ name, content, want string }{
		{"empty", "", "e3b0c44298fc1c14"},
		{"text", "content", "ed7002b439e9ac84"},
		{"JSON", `{"order_id":42}`, "2ba2950dab99043d"},
		{"long", strings.Repeat("x", 100_000), "d69e689881578332"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := dedup.FingerprintOf([]byte(test.content))
			if got := hex.EncodeToString(f[:]); got != test.want {
				t.Errorf("FingerprintOf = %s, frozen is %s", got, test.want)
			}
		})
	}
}

func TestFingerprintMatches(t *testing.T) {
	var zero dedup.Fingerprint
	a, b := dedup.FingerprintOf([]byte("a")), dedup.FingerprintOf([]byte("b"))
	for _, test := range []struct {
		name string
		f, g dedup.Fingerprint
		want bool
	}{
		{"same", a, a, true},
		{"other", a, b, false},
		{"zero and any", zero, a, true},
		{"any and zero", a, zero, true},
		{"both zero", zero, zero, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := test.f.Matches(test.g); got != test.want {
				t.Errorf("Matches = %v, want %v", got, test.want)
			}
		})
	}
}

func FuzzFingerprint(f *testing.F) {
	for _, n := range []int64{0, 1, -1, math.MaxInt64, math.MinInt64, 0x0102030405060708} {
		f.Add(n, []byte{})
	}
	f.Fuzz(func(t *testing.T, n int64, content []byte) {
		if got := driver.FingerprintFromInt64(n).Int64(); got != n {
			t.Errorf("%d came back as %d", n, got)
		}
		fp := dedup.FingerprintOf(content)
		if fp.IsZero() {
			t.Errorf("%q has the fingerprint that matches any", content)
		}
		if got := driver.FingerprintFromInt64(fp.Int64()); got != fp {
			t.Errorf("%x came back as %x", fp, got)
		}
	})
}

func TestRecordValidate(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	key := dedup.Key{Consumer: "billing", ID: "order-42"}
	for _, test := range []struct {
		name string
		rec  dedup.Record
		want error // nil: any
		ok   bool
	}{
		{"least", dedup.Record{Key: key}, nil, true},
		{"everything", dedup.Record{Key: key, Fingerprint: dedup.Fingerprint{1}, Time: now, Window: dedup.DefaultWindow}, nil, true},
		{"shortest window", dedup.Record{Key: key, Window: dedup.MinWindow}, nil, true},
		{"window too short", dedup.Record{Key: key, Window: dedup.MinWindow - 1}, nil, false},
		{"negative window", dedup.Record{Key: key, Window: -dedup.DefaultWindow}, nil, false},
		{"very old", dedup.Record{Key: key, Time: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}, nil, true},
		{
			"before any clock",
			dedup.Record{Key: key, Time: time.Date(1979, 12, 31, 23, 59, 59, 0, time.UTC)},
			dedup.ErrFuture, false,
		},
		{"1970", dedup.Record{Key: key, Time: time.Unix(0, 0)}, dedup.ErrFuture, false},
		{"before 1970", dedup.Record{Key: key, Time: time.Unix(-1, 0)}, dedup.ErrFuture, false},
		{
			"seconds taken for milliseconds",
			dedup.Record{Key: key, Time: time.UnixMilli(now.Unix())},
			dedup.ErrFuture, false,
		},
		{
			"seconds taken for nanoseconds",
			dedup.Record{Key: key, Time: time.Unix(0, now.Unix())},
			dedup.ErrFuture, false,
		},
		{"ahead of any clock", dedup.Record{Key: key, Time: now.AddDate(100, 0, 0)}, nil, true},
		{"the last year", dedup.Record{Key: key, Time: time.Date(9000, 12, 31, 0, 0, 0, 0, time.UTC)}, nil, true},
		{
			"after the last year",
			dedup.Record{Key: key, Time: time.Date(9001, 1, 1, 0, 0, 0, 0, time.UTC)},
			dedup.ErrFuture, false,
		},
		{
			"before the year 1",
			dedup.Record{Key: key, Time: time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)},
			dedup.ErrFuture, false,
		},
		{
			"milliseconds taken for seconds",
			dedup.Record{Key: key, Time: time.Unix(now.UnixMilli(), 0)},
			dedup.ErrFuture, false,
		},
		{"no key", dedup.Record{Key: dedup.Key{Consumer: "billing"}}, dedup.ErrNoKey, false},
		{"bad key", dedup.Record{Key: dedup.Key{Consumer: "billing", ID: "\x00"}}, dedup.ErrBadKey, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.rec.Validate()
			if (err == nil) != test.ok || test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("Validate = %v, want %v (ok: %v)", err, test.want, test.ok)
			}
		})
	}
}

func TestRecordValidateTime(t *testing.T) {
	database := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name    string
		time    time.Time
		machine time.Time
		want    error
	}{
		{"no time", time.Time{}, database.Add(9 * time.Hour), nil},
		{"as far ahead as may be", database.Add(dedup.MaxAhead), database.Add(-9 * time.Hour), nil},
		{"too far ahead", database.Add(dedup.MaxAhead + 1), database, dedup.ErrFuture},
		{
			"too far ahead, clocks differ a little", database.Add(dedup.MaxAhead + 1), database.Add(driver.MaxClockSkew),
			dedup.ErrFuture,
		},
		{"a slow database", database.Add(dedup.MaxAhead + 1), database.Add(driver.MaxClockSkew + 1), dedup.ErrClocks},
		{"a slow machine", database.Add(dedup.MaxAhead + 1), database.Add(-driver.MaxClockSkew - 1), dedup.ErrClocks},
	} {
		t.Run(test.name, func(t *testing.T) {
			rec := dedup.Record{Key: dedup.Key{Consumer: "billing", ID: "order-42"}, Time: test.time}
			err := driver.ValidateTime(rec, database, test.machine)
			if !errors.Is(err, test.want) || test.want == nil && err != nil ||
				errors.Is(err, dedup.ErrFuture) && errors.Is(err, dedup.ErrClocks) {
				t.Errorf("ValidateTime = %v, want %v", err, test.want)
			}
		})
	}
}

func TestVerdictString(t *testing.T) {
	for v, want := range map[dedup.Verdict]string{
		0: "none", dedup.First: "first", dedup.Duplicate: "duplicate", dedup.Mismatch: "mismatch",
		dedup.Unprovable: "unprovable", 77: "Verdict(77)",
	} {
		if got := v.String(); got != want {
			t.Errorf("Verdict(%d).String() = %q, want %q", uint8(v), got, want)
		}
	}
}

func ExampleFingerprint() {
	stored := dedup.FingerprintOf([]byte(`{"order_id":42,"amount":10}`))
	fmt.Println(stored.Matches(dedup.FingerprintOf([]byte(`{"order_id":42,"amount":10}`))))
	fmt.Println(stored.Matches(dedup.FingerprintOf([]byte(`{"order_id":42,"amount":99}`))))
	fmt.Println(stored.Matches(dedup.Fingerprint{})) // unknown
	// Output:
	// true
	// false
	// true
}

func ExampleRecord() {
	created := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) // from the message, the same on every delivery
	r := dedup.Record{
		Key:         dedup.Key{Consumer: "billing", ID: "order-42:paid"},
		Fingerprint: dedup.FingerprintOf([]byte(`{"order_id":42}`)),
		Time:        created,
	}
	fmt.Println(r.Keep())
	fmt.Println(r.Validate())
	// A producer whose clock is a day ahead:
	now := created.AddDate(0, 0, -1)
	fmt.Println(driver.ValidateTime(r, now, now))
	// Output:
	// 360h0m0s
	// <nil>
	// dedup: message time refused: billing/"order-42:paid" is of 2026-01-01T12:00:00Z, 24h0m0s ahead of the database's clock, more than 1h0m0s
}
