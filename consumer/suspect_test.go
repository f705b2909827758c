package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/consumertest"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

// A message whose handler ends each process is parked in the end. Messages that were delivered with it are not.
func TestAMessageThatEndsEachProcessIsParked(t *testing.T) {
	db := consumertest.NewStore().Database()
	killer, beside := msg("killer", "x"), []*consumer.Message{msg("0", "x"), msg("1", "x"), msg("2", "x")}
	runs := 0
	var last *consumer.Consumer[tx]
	for crash := range 40 {
		store := &dying{Store: consumertest.NewStoreOn(db)} // another process
		last = newConsumer(t, config{Store: store, Handle: func(_ context.Context, tx tx, m *consumer.Message) error {
			if m.ID == "killer" {
				runs++
				store.dies = true
				return errors.New("it dies")
			}
			return tx.Add(m.ID)
		}})
		ended := make(chan struct{})
		var errs []error
		go func() {
			defer close(ended)
			batch := append([]*consumer.Message{killer}, beside...)
			if crash < 15 { // they are behind it, so that they never run
				batch = []*consumer.Message{killer}
			}
			errs = last.ProcessBatch(context.Background(), batch)
		}()
		<-ended
		if errs != nil && errs[0] == nil {
			break
		}
		killer.Attempt++
		for _, m := range beside {
			m.Attempt++
		}
	}
	found := letters(t, last)
	if len(found) != 1 || found[0].Message.ID != "killer" || !strings.Contains(found[0].Error, "3 processes ended") ||
		found[0].Settled {
		t.Fatalf("letters: %+v", found)
	}
	if runs != 13+3 {
		t.Errorf("it ran %d times, want 13 times before it was a suspect and 3 times alone", runs)
	}
	for _, m := range beside {
		wantCount(t, db, m.ID, 1)
	}
}

// A stop while a suspect is tried does not count as an end of the process.
func TestAStopDuringATrial(t *testing.T) {
	store := consumertest.NewStore()
	ctx, cancel := context.WithCancel(t.Context())
	c := newConsumer(t, config{Store: store, Handle: func(ctx context.Context, _ tx, _ *consumer.Message) error { cancel(); return ctx.Err() }})
	m := msg("1", "x")
	m.Attempt = 90
	wantRetry(t, c.Process(ctx, m), true)
	if n := len(letters(t, c)); n != 0 {
		t.Errorf("%d letters", n)
	}
}

// A message that its source suspects is tried alone from its first delivery on.
func TestAMessageThatItsSourceSuspects(t *testing.T) {
	db := consumertest.NewStore().Database()
	runs := 0
	var last *consumer.Consumer[tx]
	for range 4 {
		store := &dying{Store: consumertest.NewStoreOn(db)} // another process
		last = newConsumer(t, config{Store: store, Handle: func(_ context.Context, tx tx, m *consumer.Message) error {
			if m.ID == "killer" {
				runs++
				store.dies = true
				return errors.New("it dies")
			}
			return tx.Add(m.ID)
		}})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			batch := []*consumer.Message{msg("0", "x"), msg("killer", "x"), msg("1", "x")}
			for _, m := range batch {
				m.Suspect = true
			}
			last.ProcessBatch(context.Background(), batch)
		}()
		<-ended
	}
	found := letters(t, last)
	if len(found) != 1 || found[0].Message.ID != "killer" || found[0].Cause != observe.CauseCrashed {
		t.Fatalf("letters: %+v", found)
	}
	if runs != 3 {
		t.Errorf("it ran %d times, want 3", runs)
	}
	wantCount(t, db, "0", 1)
	wantCount(t, db, "1", 1)
}

// A suspect that does not end its process leaves no letter.
func TestASuspectThatIsInnocent(t *testing.T) {
	for fails, attempt := range []int{90, 90, 1} {
		t.Run(fmt.Sprint(fails, " failures"), func(t *testing.T) {
			store, left := consumertest.NewStore(), fails
			seen := -1
			var c *consumer.Consumer[tx]
			c = newConsumer(t, config{Store: store, Backoff: noBackoff, Handle: func(_ context.Context, tx tx, m *consumer.Message) error {
				if seen < 0 {
					seen = len(letters(t, c))
				}
				if left--; left >= 0 {
					return errors.New("transient")
				}
				return tx.Add(m.ID)
			}})
			m := msg("1", "x")
			m.Attempt, m.Suspect = attempt, attempt == 1
			process(t, c, m)
			wantCount(t, store.Database(), "1", 1)
			if n := len(letters(t, c)); n != 0 || seen != 1 {
				t.Errorf("%d letters while it was tried and %d afterwards, want 1 and 0", seen, n)
			}
		})
	}
}

// A process may end after the message of a trial is committed, and before the letter is removed. The next delivery
// removes it. A message that was committed without a letter gets none.
func TestACommittedSuspect(t *testing.T) {
	db := consumertest.NewStore().Database()
	m := msg("1", "x")
	m.Suspect = true
	store := &dying{Store: consumertest.NewStoreOn(db)}
	first := newConsumer(t, config{Store: store, Handle: func(_ context.Context, tx tx, m *consumer.Message) error {
		store.dies = true // after the COMMIT
		return tx.Add(m.ID)
	}})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		first.ProcessBatch(context.Background(), []*consumer.Message{m})
	}()
	<-ended
	if n := len(letters(t, first)); n != 1 {
		t.Fatalf("%d letters are left, want 1", n)
	}
	for range 2 {
		writes := 0
		counted := &counting{Store: consumertest.NewStoreOn(db), parks: &writes}
		c := newConsumer(t, config{Store: counted})
		wantParks := len(letters(t, c))
		process(t, c, m)
		if n := len(letters(t, c)); n != 0 || writes != wantParks {
			t.Errorf("%d letters are left, %d were written; want 0 and %d", n, writes, wantParks)
		}
	}
	wantCount(t, db, "1", 1)
}

// A suspect whose handler did not run, because an earlier message of its ordering key has failed, was not tried, and
// earlier trials still count.
func TestASuspectThatWaitsIsNotTried(t *testing.T) {
	store, failed := consumertest.NewStore(), false
	dies := &dying{Store: consumertest.NewStoreOn(store.Database())}
	first := newConsumer(t, config{Store: dies, Handle: func(context.Context, tx, *consumer.Message) error {
		dies.dies = true
		return errors.New("it dies")
	}})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m := msg("2", "x")
		m.Suspect = true
		first.ProcessBatch(context.Background(), []*consumer.Message{m})
	}()
	<-ended
	var c *consumer.Consumer[tx]
	c = newConsumer(t, config{Store: store, Backoff: noBackoff, Handle: func(_ context.Context, tx tx, m *consumer.Message) error {
		if m.ID == "1" && !failed {
			failed = true
			return errors.New("transient")
		}
		if found := letters(t, c); m.ID == "2" && (len(found) != 1 || found[0].Times != 2) {
			t.Errorf("while the second message is tried for the second time, the letters are %+v", found)
		}
		return tx.Add(m.ID)
	}})
	batch := []*consumer.Message{msg("1", "x"), msg("2", "x")}
	for _, m := range batch {
		m.Suspect, m.OrderingKey = true, "customer-7"
	}
	for i, err := range c.ProcessBatch(t.Context(), batch) {
		wantRetry(t, err, i == 1)
	}
	for _, err := range c.ProcessBatch(t.Context(), batch) {
		if err != nil {
			t.Error(err)
		}
	}
	wantCount(t, store.Database(), "2", 1)
}

// counting counts the letters that are written.
type counting struct {
	*consumertest.Store
	parks *int
}

func (c *counting) Park(ctx context.Context, tx tx, l consumer.DeadLetter) error {
	*c.parks++
	return c.Store.Park(ctx, tx, l)
}

// dying is the store of a process that ends in a handler.
type dying struct {
	*consumertest.Store
	dies bool
}

func (d *dying) InTx(ctx context.Context, recs []dedup.Record, fn func(tx, []dedup.Claim) error) error {
	err := d.Store.InTx(ctx, recs, fn)
	if d.dies { // nothing of the process runs any more
		runtime.Goexit()
	}
	return err
}
