package claims

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/dedup"
)

// numbersWithin limits the check when a relay starts: a table may be locked.
const numbersWithin = 2 * time.Second

// NumbersAtStart is a check of numbers for a relay that starts. It fails only if the numbers are wrong. A check that
// gets no answer, or lacks a right, keeps no relay from starting; txonce check repeats it.
func NumbersAtStart(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, numbersWithin)
	defer cancel()
	if err := check(ctx); errors.Is(err, dedup.ErrSettings) {
		return err
	}
	return nil
}

// CheckNumbers fails with ErrSettings if a sequence, which has assigned numbers up to last, is behind used, the largest
// number in a table. mend is the statement that moves it on.
func CheckNumbers(owner Owner, sequence, table string, last, used int64, mend string) error {
	if last >= used {
		return nil
	}
	return owner.Errorf("%s: %w: %s has assigned numbers up to %d, and %s has number %d, as after a restore without the sequence: new rows would get numbers "+
		"that are in use. Move it on, and then start again: %s", owner, dedup.ErrSettings, sequence, last, table,
		used, mend)
}

// PostgresMend returns the statement that moves sequence on to used.
func PostgresMend(sequence string, used int64) string {
	return fmt.Sprintf("SELECT setval('%[1]s', greatest(%[2]d, (SELECT last_value FROM %[1]s)));", sequence, used)
}

// CheckPostgresNumbers checks the sequence behind the numbers of the outbox. numbers is dialect.PostgresOutbox.Numbers.
// scan runs a query of one row.
func CheckPostgresNumbers(owner Owner, scan func(query string, dest ...any) error, numbers string) error {
	var sequence string
	var last, used int64
	if err := scan(numbers, &sequence, &last, &used); err != nil {
		return owner.Errorf("%s: read the numbers of the outbox: %w", owner, err)
	}
	return CheckNumbers(owner, "the sequence "+sequence, "the outbox", last, used, PostgresMend(sequence, used))
}
