package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/txonce/txonce/dedup"
)

// Expect says how many effects a claim should have.
type Expect string

// The expectations.
const (
	One        Expect = "one"
	AtLeastOne Expect = "at-least-one"
	AtMostOne  Expect = "at-most-one"
)

// Config says what to compare.
type Config struct {
	// DB is the database with claims and effects. Required.
	DB *sql.DB

	// Dialect is as in package migrations: "postgres", "mysql" or "sqlite". Required.
	Dialect string

	// Schema has the tables. Defaults to the database's own choice.
	Schema string

	// Consumer is whose claims are compared. Required, except for Outbox without OutboxConfig.PerClaim.
	Consumer string

	// Tenant limits them to one tenant. Defaults to those without tenant.
	Tenant string

	// Effects is a query for Claims. It returns a business key and its number of effects, or only keys, one row for
	// each effect. The text :ids in it stands for the list of keys: WHERE order_id IN (:ids). Keys without effect need
	// not be returned.
	Effects string

	// Reverse is a query for Effects. It returns the business keys of effects, such as those of the last day. An effect
	// whose claim has expired is not a fault, so it should not reach back further than the consumer's window.
	Reverse string

	// Expect is how many effects a claim should have, and how many times an outbox message should be on its topic.
	// Defaults to One.
	Expect Expect

	// Sample is how many claims, effects or messages to compare. 0: all.
	Sample int

	// Rate is how many to compare, or to read from a topic, in a second at most. 0: no limit.
	Rate float64

	// MaxTime ends the audit. What was compared until then is reported. 0: no limit.
	MaxTime time.Duration

	// Progress is called after each part. Defaults to nothing.
	Progress func(Report)
}

// Report is the result of an audit.
type Report struct {
	Checked  int // claims, effects or messages that were compared
	Lost     int // claims without effect, messages without claim, or outbox messages that are not on their topic
	Doubled  int // claims with several effects
	Orphaned int // effects without claim
	Repeated int // outbox messages that are on their topic more than once
	// that cannot be compared: claims of a store that is Compact, messages whose claim or record may have expired,
	// claims that may be older than Since
	Skipped  int
	Whole    bool      // everything was compared, not a sample
	NoLosses bool      // Outbox did not look for lost messages, because nothing tells which ones were sent: see Notes
	Notes    []string  // what could not be compared, and why
	Findings []Finding // at most MaxFindings
}

// MaxFindings is how many Findings a Report has at most.
const MaxFindings = 100

// Finding is one fault.
type Finding struct {
	Kind  Kind
	Key   dedup.Key // zero: unknown, for an outbox message
	ID    string    // of an outbox message
	Count int       // effects or publications
	Where string    // the message's position, if it is about a message
}

// Kind names a fault.
type Kind string

// The kinds.
const (
	Lost     Kind = "lost"
	Doubled  Kind = "doubled"
	Orphaned Kind = "orphaned"
	Repeated Kind = "repeated"
)

// Faults returns the number of faults.
func (r *Report) Faults() int { return r.Lost + r.Doubled + r.Orphaned + r.Repeated }

// Bound says in words what the sample shows.
func (r *Report) Bound() string {
	switch {
	case r.Checked == 0:
		return "nothing was compared"
	case r.NoLosses:
		return "lost messages were not looked for"
	case r.Whole:
		return "everything was compared"
	case r.Faults() == 0 && r.Checked < 10:
		return "a sample: too few were compared to say anything about those that were not"
	case r.Faults() > 0:
		return fmt.Sprintf("a sample: about 1 in %d is wrong", r.Checked/r.Faults())
	}
	return fmt.Sprintf("a sample: if faults are spread evenly, fewer than 1 in %d is wrong, at 95 %% (nothing in n: < 3/n)", r.Checked/3)
}

func (r *Report) add(f Finding) {
	switch f.Kind {
	case Lost:
		r.Lost++
	case Doubled:
		r.Doubled++
	case Orphaned:
		r.Orphaned++
	case Repeated:
		r.Repeated++
	}
	if len(r.Findings) < MaxFindings {
		r.Findings = append(r.Findings, f)
	}
}

// page is how many claims one snapshot compares.
const page = 1000

// Validate returns nil if c can be compared.
func (c *Config) Validate() error {
	if c.Consumer == "" {
		return errors.New("audit: Config.Consumer is required")
	}
	return c.validate()
}

// validate is Validate for an audit that needs no Consumer.
func (c *Config) validate() error {
	switch {
	case c.DB == nil:
		return errors.New("audit: Config.DB is required")
	case c.Dialect != "postgres" && c.Dialect != "mysql" && c.Dialect != "sqlite":
		return fmt.Errorf("audit: Config.Dialect %q: want postgres, mysql or sqlite", c.Dialect)
	case c.Effects != "" && !strings.Contains(c.Effects, ":ids"):
		return errors.New("audit: Config.Effects must contain :ids, such as WHERE order_id IN (:ids)")
	case c.Sample < 0:
		return fmt.Errorf("audit: Config.Sample is negative: %d", c.Sample)
	case c.Rate < 0:
		return fmt.Errorf("audit: Config.Rate is negative: %v", c.Rate)
	}
	switch c.Expect {
	case "", One, AtLeastOne, AtMostOne:
		return nil
	}
	return fmt.Errorf("audit: Config.Expect %q: want %s, %s or %s", c.Expect, One, AtLeastOne, AtMostOne)
}

// snapshot runs f in a transaction that only reads, and sees one state of the database.
func (c *Config) snapshot(ctx context.Context, f func(tx *sql.Tx) error) error {
	opts := &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
	if c.Dialect == "sqlite" {
		// a transaction sees one state there; a DSN with _txlock=immediate must not lock writers out
		opts = &sql.TxOptions{ReadOnly: true}
	}
	tx, err := c.DB.BeginTx(ctx, opts)
	if err != nil {
		return fmt.Errorf("audit: begin: %w", err)
	}
	defer tx.Rollback()
	return f(tx)
}

// table returns the name of a table of txonce.
func (c *Config) table(name string) string {
	switch {
	case c.Schema == "":
		return name
	case c.Dialect == "mysql":
		return "`" + strings.ReplaceAll(c.Schema, "`", "``") + "`." + name
	}
	return `"` + strings.ReplaceAll(c.Schema, `"`, `""`) + `".` + name
}

// list returns placeholders for n values. Their numbers begin at first.
func (c *Config) list(first, n int) string {
	marks := make([]string, n)
	for i := range marks {
		marks[i] = c.param(first + i)
	}
	return strings.Join(marks, ", ")
}

// param is the placeholder of parameter n, which counts from 1.
func (c *Config) param(n int) string {
	if c.Dialect == "postgres" {
		return fmt.Sprintf("$%d", n)
	}
	return "?"
}

// instant is the placeholder of parameter n for a column with a time. Its value is in microseconds since 1970 UTC.
func (c *Config) instant(n int) string {
	if c.Dialect == "postgres" {
		return fmt.Sprintf("timestamptz 'epoch' + CAST($%d AS bigint) * interval '1 microsecond'", n)
	}
	return "?"
}

// micros reads a column with a time as microseconds since 1970 UTC.
func (c *Config) micros(column string) string {
	if c.Dialect == "postgres" {
		return "CAST(extract(epoch FROM " + column + ") * 1000000 AS bigint)"
	}
	return column
}

// hash is the parameter for the key of processed_messages.
func (c *Config) hash(h dedup.KeyHash) any {
	if c.Dialect == "postgres" {
		return fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:])
	}
	return h[:]
}
