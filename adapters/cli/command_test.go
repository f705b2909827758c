package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
	"github.com/txonce/txonce/outbox"
)

// fakeStore is the Store of a command whose answers are those of a test.
type fakeStore struct {
	ops.Store
	dedup.Purger
	parked  func(outbox.ParkedFilter) ([]outbox.ParkedMessage, error)
	discard func(ctx context.Context, seqs []int64) (int, error)
	actions func() []ops.Action
	letters []consumer.DeadLetter
	letter  func(consumer.DeadLetter) error
	ended   []string // notes
}

func (s *fakeStore) Keys() ops.Keys              { return fakeKeys{} }
func (s *fakeStore) Operator() ops.Store         { return s }
func (s *fakeStore) Check(context.Context) error { return nil }
func (s *fakeStore) Outbox() outbox.Operations   { return fakeOutbox{s} }

func (s *fakeStore) Request(_ context.Context, r ops.Request) (ops.Action, error) {
	return ops.Action{ID: ops.ActionID{1}, Kind: r.Kind, Consumer: r.Filter.Consumer}, nil
}

func (s *fakeStore) Actions(context.Context, ops.ActionFilter) ([]ops.Action, error) {
	return s.actions(), nil
}

func (s *fakeStore) End(_ context.Context, id ops.ActionID, note string) (ops.Action, error) {
	s.ended = append(s.ended, note)
	return ops.Action{ID: id, Note: note}, nil
}

func (s *fakeStore) DeadLetters(context.Context, consumer.DeadLetterFilter) ([]consumer.DeadLetter, error) {
	return s.letters, nil
}

func (s *fakeStore) DiscardLetter(_ context.Context, _ ops.ActionID, l consumer.DeadLetter) error {
	return s.letter(l)
}

type fakeKeys struct{ ops.Keys }

func (fakeKeys) Consumers(context.Context) ([]ops.ConsumerStatus, error) {
	return []ops.ConsumerStatus{{Name: "billing"}}, nil
}

type fakeOutbox struct{ store *fakeStore }

func (o fakeOutbox) Parked(_ context.Context, f outbox.ParkedFilter) ([]outbox.ParkedMessage, error) {
	return o.store.parked(f)
}

func (o fakeOutbox) Discard(ctx context.Context, seqs ...int64) (int, error) {
	return o.store.discard(ctx, seqs)
}

func (o fakeOutbox) Unpark(ctx context.Context, seqs ...int64) (int, error) {
	return o.store.discard(ctx, seqs)
}
func (fakeOutbox) Stats(context.Context) (outbox.Stats, error) { return outbox.Stats{}, nil }

// execute runs a command on s.
func execute(ctx context.Context, s *fakeStore, out io.Writer, args ...string) (text string, code int) {
	cmd := New(Config{Open: func(context.Context, Target) (*Database, error) { return &Database{Dialect: "sqlite", Store: s}, nil }})
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(""))
	cmd.SetOut(out)
	var notes bytes.Buffer
	cmd.SetErr(&notes)
	err := cmd.ExecuteContext(ctx)
	if err != nil {
		notes.WriteString(err.Error())
	}
	return notes.String(), ExitCode(err)
}

// Messages that are parked after the number was compared are not touched.
func TestOutboxChangesWhatItCounted(t *testing.T) {
	n := 0
	var touched []int64
	s := &fakeStore{
		parked: func(f outbox.ParkedFilter) (found []outbox.ParkedMessage, _ error) {
			if n == 0 {
				n = 250
			} else if f.After == 0 {
				n++ // another one is parked before each look from the beginning
			}
			for seq := f.After + 1; seq <= int64(n) && len(found) < f.Limit; seq++ {
				found = append(found, outbox.ParkedMessage{Stored: outbox.Stored{Seq: seq}})
			}
			return found, nil
		},
		discard: func(_ context.Context, seqs []int64) (int, error) {
			touched = append(touched, seqs...)
			return len(seqs), nil
		},
	}
	if text, code := execute(t.Context(), s, io.Discard, "outbox", "discard", "--topic", "x", "--reason", "x", "--yes",
		"--expect", "250"); code != ExitFine {
		t.Errorf("%d: %s", code, text)
	}
	if len(touched) != 250 || touched[0] != 250 ||
		!slices.IsSortedFunc(touched, func(a, b int64) int { return int(b - a) }) {
		t.Errorf("discarded %d, from %d to %d; want 250, the highest first", len(touched), touched[0],
			touched[len(touched)-1])
	}
}

// If the database stops answering, a change of the outbox ends after --timeout, and says how many messages it has
// changed.
func TestOutboxIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{
			parked: func(f outbox.ParkedFilter) (found []outbox.ParkedMessage, _ error) {
				for seq := f.After + 1; seq <= 150 && len(found) < f.Limit; seq++ {
					found = append(found, outbox.ParkedMessage{Stored: outbox.Stored{Seq: seq}})
				}
				return found, nil
			},
			discard: func(ctx context.Context, seqs []int64) (int, error) {
				if seqs[0] == 1 {
					return len(seqs), nil
				}
				<-ctx.Done()
				return 0, ctx.Err()
			},
		}
		text, code := execute(t.Context(), s, io.Discard, "outbox", "unpark", "--topic", "x", "--reason", "x", "--yes",
			"--expect", "150")
		if code != ExitUnreachable || !strings.Contains(text, "100 messages are unparked (action 0100") ||
			!strings.Contains(text, "no answer within 30s") {
			t.Errorf("%d: %s", code, text)
		}
	})
}

// A discard that fails midway says how many letters it has removed, and names its action.
func TestDiscardSaysWhatIsDone(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	done := 0
	s := &fakeStore{letters: make([]consumer.DeadLetter, 9), letter: func(consumer.DeadLetter) error {
		if done == 4 {
			interrupt()
			return context.Canceled
		}
		done++
		return nil
	}}
	args := []string{"dead-letters", "discard", "--consumer", "billing", "--reason", "x", "--yes", "--expect", "9"}
	text, code := execute(ctx, s, io.Discard, args...)
	if code != ExitInterrupted || !strings.Contains(text, "4 letters are discarded (action 0100") {
		t.Errorf("%d: %s", code, text)
	}
	if len(s.ended) != 1 || !strings.Contains(s.ended[0], "ended by an error") {
		t.Errorf("notes: %q", s.ended)
	}
	s.letter = func(consumer.DeadLetter) error { return dedup.ErrInFlight }
	if text, code = execute(t.Context(), s, io.Discard, args...); code != ExitFinding ||
		!strings.Contains(text, "being processed now") {
		t.Errorf("in flight: %d: %s", code, text)
	}
}

// Waiting for a replay that no worker carries out gives a hint.
func TestReplayWithoutWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := &fakeStore{actions: func() []ops.Action {
			a := ops.Action{ID: ops.ActionID{1}, Kind: ops.Replay, Consumer: "billing", Matched: 2, Waiting: 2}
			if time.Since(began) > time.Minute {
				a = ops.Action{
					ID: a.ID, Kind: ops.Replay, Consumer: "billing", Matched: 2,
					Results: map[observe.Outcome]int{observe.Processed: 2}, Ended: time.Now(), Note: replayDone,
				}
			}
			return []ops.Action{a}
		}}
		text, code := execute(t.Context(), s, io.Discard, "actions", "show", ops.ActionID{1}.String(), "--wait")
		if code != ExitFine || strings.Count(text, "do they call RunReplays?") != 1 {
			t.Errorf("%d: %s", code, text)
		}
	})
}

// Only a replay goes on without the command that began it.
func TestWaitForADiscard(t *testing.T) {
	s := &fakeStore{actions: func() []ops.Action { return []ops.Action{{ID: ops.ActionID{1}, Kind: ops.Horizon}} }}
	s.Store = noResults{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if text, code := execute(ctx, s, io.Discard, "actions", "show", ops.ActionID{1}.String(),
		"--wait"); code != ExitFine {
		t.Errorf("%d: %s", code, text)
	}
}

type noResults struct{ ops.Store }

func (noResults) Results(context.Context, ops.ResultFilter) ([]ops.Result, error) { return nil, nil }

// Output that cannot be written is an error, in text and in JSON.
func TestOutputIsNotComplete(t *testing.T) {
	for _, args := range [][]string{
		{"plan", "--rate", "1"},
		{"plan", "--rate", "1", "--json"},
		{"migrate", "dump"},
		{"actions", "list"},
	} {
		s := &fakeStore{actions: func() []ops.Action { return nil }}
		if text, code := execute(t.Context(), s, full{}, args...); code != ExitUnreachable ||
			!strings.Contains(text, "the output is not complete") {
			t.Errorf("%s: %d: %s", args, code, text)
		}
	}
}

// full is a disk without space.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }
