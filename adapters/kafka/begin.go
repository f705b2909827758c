package kafka

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/txonce/txonce/dedup/driver"
)

// found is what a session finds when it begins to read a partition.
type found struct {
	consumer  string
	committed int64  // the group's offset; negative: it has none
	metadata  string // of that offset
	log       string // the topic ID; empty: the cluster has none
	first     int64  // the first offset that the partition has
	initial   int64  // where a group without offset begins
	now       time.Time
}

// beginning says where a session begins to read a partition, and why.
type beginning struct {
	at     int64
	mark   mark
	reset  bool          // reading may have begun elsewhere already
	rewind driver.Rewind // its zero value: the database did not go back
	note   string        // for the log; empty: nothing special
}

// errNoPosition says that the group's offset was committed for a row that the database does not have.
var errNoPosition = errors.New("the database does not know how far the group is, although this consumer has committed the group's offset: " +
	"it is another database (then correct its address, and do not move the offset), a backup from before the consumer's first start, " +
	"or the table source_positions was emptied. OFFSET is that of the first message whose effects may be missing: " +
	"docs/operations.md says how to find it")

// errSkipped says that the database went back to before messages that an operator had skipped.
var errSkipped = errors.New("the database went back to before messages that somebody has skipped by moving the group's offset, and it is unknown whether to handle them now")

// begin decides where to begin. row is what the database has; nil: nothing.
//
//   - An offset without mark was committed by somebody else: it is accepted.
//   - Another topic ID: the topic was created again, or the cluster is another one that mirrors it, so that offsets mean
//     other messages. Reading begins with the first one.
//   - An offset with a mark, and no row: a person must decide.
//   - No offset, as after the topic was deleted: reading begins where the configuration says, or at the row if that is
//     earlier.
//   - An offset with a mark that is above the row: the database went back. Reading begins at the row.
//   - Otherwise at the group's offset.
func begin(f found, row *driver.Position) (beginning, error) {
	m := markOf(f.metadata, f.consumer)
	b := beginning{at: f.committed, mark: mark{Consumer: f.consumer, Log: knownLog(f.log, m, row)}}
	if m != nil {
		b.mark.Skips = m.Skips
	}
	anew := anotherLog(f.log, m, row)
	switch {
	case f.committed < 0 && row == nil:
		b.at, b.reset = f.initial, f.initial != f.first
	case f.committed < 0 && anew:
		b.at, b.reset = f.first, f.initial != f.first
		b.note = "the topic was created again: its messages are read from the first one"
	case f.committed < 0:
		b.at = min(f.initial, max(row.Next, f.first))
		b.reset = f.initial != f.first
		b.note = fmt.Sprintf("the group has no offset: its offsets were deleted or have expired, or the topic was created again. "+
			"The database has the position %d", row.Next)
	case m == nil && row != nil && row.Next != f.committed:
		b.note = fmt.Sprintf("the group's offset was committed by another program or an operator: it is accepted in place of the position %d", row.Next)
		if row.Next < f.committed && !anew {
			b.mark = b.mark.skipped(row.Next, f.committed, f.now)
		}
	case m == nil:
	case anew:
		b.at, b.reset, b.mark.Skips = f.first, true, nil
		b.note = fmt.Sprintf("the topic was created again: its messages are read from the first one. The group's offset %d was of the former topic", f.committed)
	case row == nil:
		return b, errNoPosition
	case f.committed > row.Next:
		if lost := m.skipsIn(row.Next, f.committed); len(lost) > 0 {
			return b, fmt.Errorf("%w: %s; the database went back from %d to %d. %s", errSkipped, skipsText(lost), f.committed,
				row.Next, afterSkips(lost, row.Next))
		}
		b.at, b.reset = max(row.Next, f.first), true
		b.rewind = driver.Rewind{From: f.committed, Lost: row.Next, To: b.at}
	}
	return b, nil
}

// skipsText names skipped messages.
func skipsText(skips []skip) string {
	texts := make([]string, len(skips))
	for i, s := range skips {
		texts[i] = fmt.Sprintf("those from %d up to %d, found at %s", s.From, s.To, time.Unix(s.At, 0).UTC().Format(time.RFC3339))
	}
	return strings.Join(texts, ", and ")
}

// afterSkips says where reading may go on. Behind a skip, the lost messages before it would be left out, too.
func afterSkips(skips []skip, position int64) string {
	text := fmt.Sprintf("With the OFFSET %d no message is left out: all from there on are read again, also the skipped ones", position)
	switch s := skips[0]; {
	case len(skips) > 1:
	case s.From <= position:
		text += fmt.Sprintf(". With the OFFSET %d the skipped ones are left out", s.To)
	default:
		text += fmt.Sprintf(". The OFFSET %d would leave out the skipped ones, and also those from %d up to %d, whose effects were lost",
			s.To, position, s.From)
	}
	return text
}

// knownLog returns log, or, if the cluster does not tell it now, what was known of it before: a topic that is created
// again meanwhile is then noticed later.
func knownLog(log string, m *mark, row *driver.Position) string {
	switch {
	case log != "":
		return log
	case m != nil && m.Log != "":
		return m.Log
	case row != nil:
		return row.Log
	}
	return ""
}

// anotherLog reports whether the group's offset or the row is one of another topic with the same name.
func anotherLog(log string, m *mark, row *driver.Position) bool {
	differs := func(other string) bool { return log != "" && other != "" && log != other }
	return m != nil && differs(m.Log) || row != nil && differs(row.Log)
}

// position returns the row of a session that begins so. window is about how many messages the session before can have
// had in work when its process was killed.
func (b beginning) position(row *driver.Position, window int64) driver.Position {
	p := driver.Position{Log: b.mark.Log, Next: b.at, Epoch: 1, Open: true}
	if row == nil {
		return p
	}
	p.Epoch, p.Rewind = row.Epoch+1, row.Rewind
	if b.rewind != (driver.Rewind{}) {
		p.Rewind = b.rewind
	}
	switch near := row.Tries > 0 && b.at < row.Suspect; {
	case near && row.Tries >= suspectsAfter: // also after an end in order: a trial that was not finished has left a letter
		p.Suspect, p.Tries = row.Suspect, row.Tries
	case near && row.Open:
		p.Suspect, p.Tries = max(row.Suspect, b.at+window), row.Tries+1
	case row.Open: // its process was killed
		p.Suspect, p.Tries = b.at+window, 1
	}
	return p
}

// suspectsAfter is how many sessions in a row must have been killed near one offset before the messages there are tried
// alone, until all of them are finished. Once is a crash of the machine, or an operator.
const suspectsAfter = 2
