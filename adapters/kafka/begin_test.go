package kafka_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/txonce/txonce/adapters/kafka"
	"github.com/txonce/txonce/dedup/driver"
)

// An error about skipped messages names the offsets that leave lost messages out.
func TestSkippedMessagesAreNamed(t *testing.T) {
	t.Parallel()
	const mark = `{"txonce":"billing","log":"A","skips":[{"from":50,"to":60,"at":1}]}`
	for next, want := range map[int64]string{
		55: "With the OFFSET 55 no message is left out: all from there on are read again, also the skipped ones. With the OFFSET 60 the skipped ones are left out",
		40: "The OFFSET 60 would leave out the skipped ones, and also those from 40 up to 50, whose effects were lost",
	} {
		_, _, err := kafka.Begin(kafka.Found{Committed: 70, Metadata: mark, Log: "A"},
			&driver.Position{Log: "A", Next: next}, 0)
		if !errors.Is(err, kafka.ErrSkipped) || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v, want %s", next, err, want)
		}
	}
}

func TestBegin(t *testing.T) {
	const ours, others, old = `{"txonce":"billing","log":"A"}`, `{"txonce":"shipping","log":"A"}`, `{"txonce":"billing","log":"B"}`
	const skipped = `{"txonce":"billing","log":"A","skips":[{"from":40,"to":60,"at":1700000000}]}`
	row := func(log string, next int64) *driver.Position { return &driver.Position{Log: log, Next: next, Epoch: 7} }
	back := func(from, lost, to int64) driver.Rewind { return driver.Rewind{From: from, Lost: lost, To: to} }
	for _, c := range []struct {
		name  string
		found kafka.Found
		row   *driver.Position
		want  kafka.Beginning
		note  string
		err   error
	}{
		{
			name: "the first start", found: kafka.Found{Committed: -1, Initial: 5, First: 5, Log: "A"},
			want: kafka.Beginning{At: 5, Mark: ours},
		},
		{
			name:  "the group's offsets were deleted",
			found: kafka.Found{Committed: -1, Initial: 5, First: 5, Log: "A"}, row: row("A", 90),
			want: kafka.Beginning{At: 5, Mark: ours}, note: "the group has no offset",
		},
		{
			name:  "the first start at the end of the topic",
			found: kafka.Found{Committed: -1, Initial: 150, First: 5, Log: "A"},
			want:  kafka.Beginning{At: 150, Reset: true, Mark: ours},
		},
		{
			name:  "no offset where a group begins at the end, but a row",
			found: kafka.Found{Committed: -1, Initial: 150, First: 5, Log: "A"}, row: row("A", 90),
			want: kafka.Beginning{At: 90, Reset: true, Mark: ours}, note: "the group has no offset",
		},
		{
			name:  "no offset, a row, and the topic has no longer what follows it",
			found: kafka.Found{Committed: -1, Initial: 150, First: 95, Log: "A"}, row: row("A", 90),
			want: kafka.Beginning{At: 95, Reset: true, Mark: ours}, note: "the group has no offset",
		},
		{
			name:  "the topic was created again, and its group begins at the end",
			found: kafka.Found{Committed: -1, Initial: 150, First: 5, Log: "A"}, row: row("B", 90),
			want: kafka.Beginning{At: 5, Reset: true, Mark: ours}, note: "created again",
		},
		{
			name:  "a cluster that mirrors another one, with its marks",
			found: kafka.Found{Committed: 50, Metadata: old, Log: "A", First: 2},
			want:  kafka.Beginning{At: 2, Reset: true, Mark: ours}, note: "created again",
		},
		{
			name:  "the cluster does not tell the topic ID now",
			found: kafka.Found{Committed: 50, Metadata: ours}, row: row("A", 50),
			want: kafka.Beginning{At: 50, Mark: ours},
		},
		{
			name:  "the cluster does not tell the topic ID now, and an operator moved the offset",
			found: kafka.Found{Committed: 40}, row: row("A", 50),
			want: kafka.Beginning{At: 40, Mark: ours}, note: "by another program or an operator",
		},
		{
			name: "the first start of a group that another program had", found: kafka.Found{Committed: 50, Log: "A"},
			want: kafka.Beginning{At: 50, Mark: ours},
		},
		{
			name: "as it was", found: kafka.Found{Committed: 50, Metadata: ours, Log: "A"}, row: row("A", 50),
			want: kafka.Beginning{At: 50, Mark: ours},
		},
		{
			name: "a crash before the group's offset followed", found: kafka.Found{Committed: 40, Metadata: ours, Log: "A"},
			row: row("A", 50), want: kafka.Beginning{At: 40, Mark: ours},
		},
		{
			name: "the database went back", found: kafka.Found{Committed: 50, Metadata: ours, Log: "A"}, row: row("A", 30),
			want: kafka.Beginning{At: 30, Reset: true, Mark: ours, Rewind: back(50, 30, 30)},
		},
		{
			name:  "the topic has no longer what was lost",
			found: kafka.Found{Committed: 50, Metadata: ours, Log: "A", First: 35}, row: row("A", 30),
			want: kafka.Beginning{At: 35, Reset: true, Mark: ours, Rewind: back(50, 30, 35)},
		},
		{
			name:  "the topic has nothing of what was lost",
			found: kafka.Found{Committed: 50, Metadata: ours, Log: "A", First: 70}, row: row("A", 30),
			want: kafka.Beginning{At: 70, Reset: true, Mark: ours, Rewind: back(50, 30, 70)},
		},
		{
			name: "an operator moved it forward", found: kafka.Found{Committed: 90, Log: "A"}, row: row("A", 50),
			want: kafka.Beginning{At: 90, Mark: `{"txonce":"billing","log":"A","skips":[{"from":50,"to":90,"at":1800000000}]}`},
			note: "by another program or an operator",
		},
		{
			name: "an operator moved it back", found: kafka.Found{Committed: 10, Log: "A"}, row: row("A", 50),
			want: kafka.Beginning{At: 10, Mark: ours}, note: "by another program or an operator",
		},
		{
			name:  "another consumer of the group committed it",
			found: kafka.Found{Committed: 90, Metadata: others, Log: "A"}, row: row("A", 50),
			want: kafka.Beginning{At: 90, Mark: `{"txonce":"billing","log":"A","skips":[{"from":50,"to":90,"at":1800000000}]}`},
			note: "by another program or an operator",
		},
		{
			name: "a skip stays in the mark", found: kafka.Found{Committed: 70, Metadata: skipped, Log: "A"},
			row: row("A", 70), want: kafka.Beginning{At: 70, Mark: skipped},
		},
		{
			name:  "the database went back, but not to before the skip",
			found: kafka.Found{Committed: 70, Metadata: skipped, Log: "A"}, row: row("A", 60),
			want: kafka.Beginning{At: 60, Reset: true, Mark: skipped, Rewind: back(70, 60, 60)},
		},
		{
			name:  "the database went back to before a skip",
			found: kafka.Found{Committed: 70, Metadata: skipped, Log: "A"}, row: row("A", 59), err: kafka.ErrSkipped,
		},
		{
			name: "no row", found: kafka.Found{Committed: 50, Metadata: ours, Log: "A"}, err: kafka.ErrNoPosition,
		},
		{
			name:  "the topic was created again, and a member had committed an offset of the former one",
			found: kafka.Found{Committed: 50, Metadata: old, Log: "A", First: 2}, row: row("B", 50),
			want: kafka.Beginning{At: 2, Reset: true, Mark: ours}, note: "created again",
		},
		{
			name:  "the topic was created again, and the database had noticed",
			found: kafka.Found{Committed: 50, Metadata: old, Log: "A"}, row: row("A", 0),
			want: kafka.Beginning{At: 0, Reset: true, Mark: ours}, note: "created again",
		},
		{
			name:  "the database went back to before the topic was created again",
			found: kafka.Found{Committed: 50, Metadata: ours, Log: "A"}, row: row("B", 500),
			want: kafka.Beginning{At: 0, Reset: true, Mark: ours}, note: "created again",
		},
		{
			name:  "an operator moved the offset in a topic that was created again",
			found: kafka.Found{Committed: 20, Log: "A"}, row: row("B", 10),
			want: kafka.Beginning{At: 20, Mark: ours}, note: "by another program or an operator",
		},
		{
			name:  "a cluster without topic IDs",
			found: kafka.Found{Committed: 50, Metadata: `{"txonce":"billing"}`}, row: row("", 50),
			want: kafka.Beginning{At: 50, Mark: `{"txonce":"billing"}`},
		},
		{
			name: "metadata of another program", found: kafka.Found{Committed: 50, Metadata: "NO_METADATA", Log: "A"},
			row: row("A", 50), want: kafka.Beginning{At: 50, Mark: ours},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, now, err := kafka.Begin(c.found, c.row, 100)
			if !errors.Is(err, c.err) {
				t.Fatalf("%v, want %v", err, c.err)
			}
			if err != nil {
				return
			}
			if !strings.Contains(got.Note, c.note) || c.note == "" && got.Note != "" {
				t.Errorf("it says %q, want %q in it", got.Note, c.note)
			}
			got.Note = ""
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("begins (-want +got):\n%s", diff)
			}
			epoch := int64(1)
			if c.row != nil {
				epoch = c.row.Epoch + 1
			}
			log := "A"
			if c.want.Mark == `{"txonce":"billing"}` {
				log = ""
			}
			want := driver.Position{Log: log, Next: c.want.At, Epoch: epoch, Open: true, Rewind: c.want.Rewind}
			if diff := cmp.Diff(want, now); diff != "" {
				t.Errorf("row (-want +got):\n%s", diff)
			}
		})
	}
}

// Sessions that were killed near one offset are counted. A session that ends in order, or one that gets further, begins
// anew.
func TestBeginAfterKilledSessions(t *testing.T) {
	var row *driver.Position
	begin := func(committed int64, window int64) driver.Position {
		_, now, err := kafka.Begin(kafka.Found{Committed: committed, Metadata: `{"txonce":"billing"}`}, row, window)
		if row == nil {
			_, now, err = kafka.Begin(kafka.Found{Committed: -1}, nil, window)
		}
		if err != nil {
			t.Fatal(err)
		}
		row = &now
		return now
	}
	for i, step := range []struct {
		next    int64 // when the session was killed
		close   bool
		suspect int64
		tries   int
	}{
		{next: 50},
		{next: 149, suspect: 150, tries: 1},
		{next: 150, suspect: 249, tries: 2},
		{next: 160, close: true, suspect: 249, tries: 2}, // tried alone until all are finished
		{next: 249, suspect: 249, tries: 2},
		{next: 249, suspect: 349, tries: 1},
		{next: 300, close: true, suspect: 349, tries: 2},
		{next: 349, close: true, suspect: 349, tries: 2},
		{next: 349},
		{next: 349, close: true, suspect: 449, tries: 1},
		{next: 349},
	} {
		got := begin(func() int64 {
			if row == nil {
				return -1
			}
			return row.Next
		}(), 100)
		if got.Suspect != step.suspect || got.Tries != step.tries {
			t.Fatalf("session %d: suspect %d, %d tries; want %d, %d", i, got.Suspect, got.Tries, step.suspect, step.tries)
		}
		row.Next, row.Open = step.next, !step.close
	}
}
