package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// filterFlags are the conditions that dead letters and parked messages have in common.
type filterFlags struct {
	topic, key, text, since, until string
	limit                          int
}

func (f *filterFlags) add(c *cobra.Command, topic, key string) {
	flags := c.Flags()
	flags.StringVar(&f.topic, "topic", "", "only those of this "+topic)
	flags.StringVar(&f.key, "key", "", "only those with this "+key)
	flags.StringVar(&f.text, "error", "", "only those whose error contains this text; upper and lower case differ")
	flags.StringVar(&f.since, "since", "", "only those parked at this time or later: 2026-11-24T10:07:00Z, or 2h for two hours ago")
	flags.StringVar(&f.until, "until", "", "only those parked before this time; as for --since")
}

// check returns the times, and an error if a flag has a wrong value.
func (f *filterFlags) check() (since, until time.Time, err error) {
	now := time.Now()
	if since, err = parseTime("--since", f.since, now); err != nil {
		return since, until, err
	}
	if until, err = parseTime("--until", f.until, now); err != nil {
		return since, until, err
	}
	switch {
	case !since.IsZero() && !until.IsZero() && !since.Before(until):
		return since, until, Usage(fmt.Errorf("--since %s is not before --until %s: nothing can match", f.since,
			f.until))
	case f.limit < 0:
		return since, until, Usage(fmt.Errorf("--limit %d is negative", f.limit))
	}
	return since, until, nil
}

// pageSize is the --limit of commands that list.
const pageSize = 100

// parseTime reads a time in RFC 3339 or as tables print it. It also reads a duration, and returns the time that long
// before now. If now is zero, a duration is an error.
func parseTime(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	if now.IsZero() {
		return time.Time{}, Usage(fmt.Errorf("%s %q: want a time such as 2026-11-24T10:07:00Z", flag, text))
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	return time.Time{}, Usage(fmt.Errorf("%s %q: want a time such as 2026-11-24T10:07:00Z, or a duration such as 2h",
		flag, text))
}
