package strict

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// DefaultTolerance is how far a signed time may be from the time of receipt, unless the user configures something else. Most
// senders recommend it.
const DefaultTolerance = 5 * time.Minute

// MaxTolerance is the longest tolerance that can be configured. A longer one would hardly be a check.
const MaxTolerance = time.Hour

// Tolerance returns what a configured tolerance means. 0 means the default: never that the check is off.
func Tolerance(configured time.Duration) (time.Duration, error) {
	switch {
	case configured == 0:
		return DefaultTolerance, nil
	case configured < time.Second || configured > MaxTolerance:
		return 0, fmt.Errorf("is %v: want between 1s and %v, or 0 for %v", configured, MaxTolerance, DefaultTolerance)
	default:
		return configured, nil
	}
}

// maxDigits allows for years up to 5138, which all databases can keep. More digits could overflow a calculation.
const maxDigits = 11

// UnixSeconds reads 1 to 11 decimal digits.
func UnixSeconds(digits string) (time.Time, error) {
	if digits == "" || len(digits) > maxDigits {
		return time.Time{}, fmt.Errorf("want 1 to %d digits, not %d characters", maxDigits, len(digits))
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return time.Time{}, errors.New("want decimal digits only")
		}
	}
	seconds, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return time.Time{}, errors.New("want a number of seconds")
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// Recent returns an error if signed is further from received than tolerance, in either direction.
func Recent(signed, received time.Time, tolerance time.Duration) error {
	// Sub does not overflow, and Abs of its smallest result is its largest: negating that by hand would stay negative, and accept
	// times of the far future.
	if off := received.Sub(signed); off.Abs() > tolerance {
		return fmt.Errorf("the signed time %v and the time of receipt %v differ by more than %v",
			signed.UTC().Format(time.RFC3339), received.UTC().Format(time.RFC3339), tolerance)
	}
	return nil
}
