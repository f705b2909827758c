package publishing_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/txonce/txonce/internal/publishing"
	"github.com/txonce/txonce/outbox"
)

var errRefused = errors.New("refused")

func messages(n int) []outbox.Message { return make([]outbox.Message, n) }

func unavailable(err error) bool { return errors.As(err, new(*outbox.UnavailableError)) }

// Only the first answer to a message counts, and a message without one is never confirmed.
func TestPublishAnswersEachMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var call *publishing.Call
		errs := publishing.Publish(ctx, "test", messages(4), func(ctx context.Context, c *publishing.Call, of []int, isolated bool) {
			if call = c; !slices.Equal(of, []int{0, 1, 2, 3}) || isolated {
				t.Errorf("sent %v, isolated: %v", of, isolated)
			}
			if c.Confirmed() {
				t.Error("confirmed before any answer")
			}
			c.Answer(0, nil)
			c.Answer(0, errRefused)
			c.Answer(1, errRefused)
			c.Answer(1, nil)
			if !c.Confirmed() {
				t.Error("not confirmed after the broker's answer")
			}
			select {
			case <-c.Done():
				t.Error("done without all answers")
			case <-ctx.Done():
			}
		})
		call.AnswerAll([]int{2, 3}, nil) // too late
		if errs[0] != nil || !errors.Is(errs[1], errRefused) {
			t.Errorf("answers %v", errs)
		}
		for _, err := range errs[2:] {
			if !unavailable(err) || !errors.Is(err, context.DeadlineExceeded) ||
				!strings.HasPrefix(errors.Unwrap(err).Error(), "test: ") {
				t.Errorf("without an answer: %v", err)
			}
		}
	})
}

// A relay that stops is not the broker's fault, and neither is a Publisher that forgets a message.
func TestPublishBlamesNobody(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	for _, send := range []publishing.Send{
		func(context.Context, *publishing.Call, []int, bool) {},
		func(context.Context, *publishing.Call, []int, bool) { cancel() },
	} {
		if err := publishing.Publish(ctx, "test", messages(1), send)[0]; err == nil || unavailable(err) ||
			outbox.IsPermanent(err) {
			t.Errorf("answer %v", err)
		}
	}
	if errs := publishing.Publish(ctx, "test", nil, nil); len(errs) != 0 {
		t.Errorf("answers %v for no messages", errs)
	}
}

func TestPublishHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		errs := publishing.Publish(t.Context(), "test", messages(1), func(ctx context.Context, _ *publishing.Call,
			_ []int, _ bool,
		) {
			<-ctx.Done()
		})
		if took := time.Since(began); took != 10*time.Second || !unavailable(errs[0]) {
			t.Errorf("answer %v after %v", errs[0], took)
		}
	})
}

// The refusal of a batch does not show which message is at fault: each message is sent by itself, and those that are
// refused then are at fault.
func TestPublishIsolates(t *testing.T) {
	batch := &publishing.BatchError{Err: outbox.Permanent(errRefused)}
	var sent [][]int
	errs := publishing.Publish(t.Context(), "test", messages(5), func(_ context.Context, c *publishing.Call, of []int, isolated bool) {
		sent = append(sent, of)
		if isolated {
			c.Answer(1, batch)
			c.AnswerAll([]int{3, 4}, nil)
			<-c.Done()
			return
		}
		c.Answer(0, nil)
		c.Answer(2, errRefused)
		c.AnswerAll([]int{1, 3, 4}, batch)
		<-c.Done()
	})
	if len(sent) != 2 || !slices.Equal(sent[1], []int{1, 3, 4}) {
		t.Errorf("sent %v", sent)
	}
	if errs[0] != nil || errs[3] != nil || errs[4] != nil || !errors.Is(errs[2], errRefused) ||
		outbox.IsPermanent(errs[2]) || !outbox.IsPermanent(errs[1]) {
		t.Errorf("answers %v", errs)
	}
}

// No message is refused for good because of another message of its batch, also if there is no time to send it by
// itself.
func TestPublishHasNoTimeToIsolate(t *testing.T) {
	for _, tries := range []int{1, 2} {
		ctx, cancel := context.WithCancelCause(t.Context())
		sent := 0
		errs := publishing.Publish(ctx, "test", messages(2), func(_ context.Context, c *publishing.Call, of []int, isolated bool) {
			if sent++; sent == tries {
				cancel(context.DeadlineExceeded)
			}
			if !isolated {
				c.AnswerAll(of, &publishing.BatchError{Err: outbox.Permanent(errRefused)})
			}
		})
		for _, err := range errs {
			if err == nil || outbox.IsPermanent(err) || sent != tries {
				t.Errorf("sent %d times: %v", sent, err)
			}
		}
	}
}
