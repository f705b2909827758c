package strict

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// DefaultTolerance is how far a signed time may be from the time of receipt, unless the user configures something else.
// Most senders recommend it.
const DefaultTolerance = 5 * time.Minute

// MaxTolerance is the longest tolerance that can be configured. A longer one would hardly be a check.
const MaxTolerance = time.Hour

// Tolerance returns what a configured tolerance means. 0 means the default: never that the check is off.
func Tolerance(configured time.Duration) (time.Duration, error) {
	switch {
	case configured == 0:
		return DefaultTolerance, nil
	case configured < 0:
		return 0, fmt.Errorf("is %v: want more than 0, or 0 for %d minutes", configured,
			int(DefaultTolerance.Minutes()))
	case configured < time.Second || configured > MaxTolerance:
		return 0, fmt.Errorf("is %v: want between 1s and %v, or 0 for %v", configured, MaxTolerance, DefaultTolerance)
	default:
		return configured, nil
	}
}

// secondsDigits allows for years up to 5138, which all databases can keep. More digits could overflow a calculation.
const secondsDigits = 11

// UnixSeconds reads 1 to 11 decimal digits.
func UnixSeconds(digits string) (time.Time, error) {
	seconds, err := Digits(digits, secondsDigits)
	if err != nil {
		return time.Time{}, err
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// Digits reads a number of 1 to most decimal digits, without a sign. most is 18 at most, so that nothing overflows.
func Digits(digits string, most int) (int64, error) {
	if digits == "" || len(digits) > most {
		return 0, fmt.Errorf("want 1 to %d digits, not %d characters", most, len(digits))
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return 0, errors.New("want decimal digits only")
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, errors.New("want a smaller number")
	}
	return n, nil
}

// lastYear is before the last one that all databases can keep.
const lastYear = 9000

// RFC3339 reads a time that is Storable. The zero time would mean: unknown.
func RFC3339(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, errors.New("is not a time in the form of RFC 3339")
	}
	return t.UTC(), Storable(t)
}

// Storable returns an error unless all databases can keep t.
func Storable(t time.Time) error {
	if t.Unix() <= 0 || t.UTC().Year() >= lastYear {
		return errors.New("is not between 1970 and 9000")
	}
	return nil
}

// Recent returns an error if signed is further from received than tolerance, in either direction.
func Recent(signed, received time.Time, tolerance time.Duration) error {
	// Sub does not overflow, and Abs of its smallest result is its largest: negating that by hand would stay negative,
	// and accept times of the far future.
	if off := received.Sub(signed); off.Abs() > tolerance {
		return fmt.Errorf("the signed time %v and the time of receipt %v differ by more than %v",
			signed.UTC().Format(time.RFC3339), received.UTC().Format(time.RFC3339), tolerance)
	}
	return nil
}
