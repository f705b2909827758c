package cli

import (
	"fmt"
	"time"

	"github.com/txonce/txonce/consumer/ops"
)

// printPositions prints what the database knows about how far sources are handled.
func printPositions(out *printer, s ops.Status) {
	rows := [][]string{{
		"CONSUMER", "SOURCE", "PARTITIONS", "LONGEST IDLE", "WENT BACK", "PARTITION AND OFFSETS", "READ AGAIN", "MAY BE LOST", "DIED BEFORE",
	}}
	for _, c := range s.Consumers {
		for _, p := range c.Positions {
			row := []string{c.Name, p.Source, fmt.Sprint(p.Partitions), ago(s.Now.Sub(p.Oldest))}
			row = append(row, wentBack(p)...)
			rows = append(rows, append(row, killedNear(p)))
		}
	}
	if len(rows) > 1 {
		out.printf("\n")
		out.table(rows)
	}
}

// wentBack says which messages were read again because the database went back, and how many the source had deleted.
func wentBack(p ops.SourcePositions) []string {
	r := p.Rewind
	if r == nil {
		return []string{"-", "-", "-", "-"}
	}
	if !r.LostFrom.IsZero() {
		return []string{instant(r.At), lostTime(r), "0", fmt.Sprint(p.Missing)}
	}
	offsets := fmt.Sprintf("%d: %d to %d", r.Partition, r.From, r.To)
	if r.To != r.Lost {
		offsets += fmt.Sprintf(" instead of %d", r.Lost)
	}
	return []string{instant(r.At), offsets + others(p.Rewound), fmt.Sprint(p.Again), fmt.Sprint(p.Missing)}
}

// lostTime says what is lost of a source that cannot be read again.
func lostTime(r *ops.Rewind) string {
	return "commits from " + instant(r.LostFrom) + " to " + instant(r.LostUntil)
}

// killedNear says where processes died.
func killedNear(p ops.SourcePositions) string {
	s := p.Suspect
	if s == nil {
		return "-"
	}
	return fmt.Sprintf("%d: %d (%d in a row)", s.Partition, s.Offset, s.Tries) + others(p.Suspects)
}

// others says that all n partitions count, where one is shown.
func others(n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(", of %d", n)
}

// rewindShown is how long check reports that a database went back.
const rewindShown = 24 * time.Hour

// checkPositions looks whether the database went back, and whether messages kill the processes that handle them.
func checkPositions(c *checks, now time.Time, consumer ops.ConsumerStatus) {
	for _, p := range consumer.Positions {
		if r := p.Rewind; r != nil && now.Sub(r.At) < rewindShown {
			if !r.LostFrom.IsZero() {
				c.add(wrong, "positions", fmt.Sprintf("the database went back: %s lost %s, at most %s that were acknowledged, reported by %s at %s",
					consumer.Name, lostTime(r), about(p.Missing), fmt.Sprintf("%d of %d processes", p.Rewound, p.Partitions), instant(r.At)),
					"send the messages of that time again from their source: docs/runbook/DatabaseWentBack.md")
				continue
			}
			text := fmt.Sprintf("the database went back: %s read %s again, in %s, last at %s", consumer.Name,
				about(p.Again), p.Source+partitions(p.Rewound), instant(r.At))
			if p.Missing > 0 {
				c.add(wrong, "positions", fmt.Sprintf("%s; the source had deleted %s that should have been read as well", text,
					about(p.Missing)), "send them again from where they came from: docs/runbook/DatabaseWentBack.md")
			} else {
				c.add(warning, "positions", text, "other tables have lost commits as well: docs/runbook/DatabaseWentBack.md")
			}
		}
		if s := p.Suspect; s != nil {
			c.add(warning, "positions", fmt.Sprintf("%s: %d sessions were killed before offset %d of partition %d of %s", consumer.Name,
				s.Tries, s.Offset, s.Partition, p.Source),
				"look for the end of these processes, such as too little memory; a message that kills them again and again is parked")
		}
	}
}

func about(n int64) string { return "about " + count(int(n), "message") }

func partitions(n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(" (%d partitions)", n)
}

type positionsObject struct {
	Source     string         `json:"source"`
	Partitions int            `json:"partitions"`
	Oldest     *time.Time     `json:"oldest_change"`
	Suspects   int            `json:"suspects"`
	Suspect    *suspectObject `json:"suspect,omitempty"`
	Rewound    int            `json:"rewound"` // partitions
	Again      int64          `json:"read_again"`
	Missing    int64          `json:"missing"`
	Rewind     *rewindObject  `json:"last_rewind,omitempty"`
}

type suspectObject struct {
	Partition int32 `json:"partition"`
	Offset    int64 `json:"offset"`
	Tries     int   `json:"tries"`
}

type rewindObject struct {
	Partition int32     `json:"partition"`
	At        time.Time `json:"at"`
	From      int64     `json:"from"`
	Lost      int64     `json:"lost"`
	To        int64     `json:"to"`

	LostFrom  *time.Time `json:"lost_from,omitempty"` // of a source that cannot be read again
	LostUntil *time.Time `json:"lost_until,omitempty"`
}

func positionsJSON(all []ops.SourcePositions) []positionsObject {
	objects := make([]positionsObject, 0, len(all))
	for _, p := range all {
		o := positionsObject{
			Source: p.Source, Partitions: p.Partitions, Oldest: jsonTime(p.Oldest), Suspects: p.Suspects,
			Rewound: p.Rewound, Again: p.Again, Missing: p.Missing,
		}
		if s := p.Suspect; s != nil {
			o.Suspect = &suspectObject{s.Partition, s.Offset, s.Tries}
		}
		if r := p.Rewind; r != nil {
			o.Rewind = &rewindObject{r.Partition, r.At.UTC(), r.From, r.Lost, r.To, jsonTime(r.LostFrom), jsonTime(r.LostUntil)}
		}
		objects = append(objects, o)
	}
	return objects
}
