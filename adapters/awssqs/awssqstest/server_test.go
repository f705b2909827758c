package awssqstest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/txonce/txonce/adapters/awssqs/awssqstest"
)

// inBubble runs test with a queue of a new Server in a synctest bubble.
func inBubble(t *testing.T, cfg awssqstest.Config, name string, attributes map[string]string,
	test func(s *awssqstest.Server, w *world),
) {
	synctest.Test(t, func(t *testing.T) {
		s := awssqstest.NewServer(cfg)
		fifo := strings.HasSuffix(name, ".fifo")
		if fifo {
			attributes = map[string]string{"FifoQueue": "true"}
		}
		made, err := s.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
		if err != nil {
			t.Fatal(err)
		}
		test(s, &world{client: s, t: t, url: made.QueueUrl, fifo: fifo})
	})
}

func wait(d time.Duration) { <-time.After(d) }

// Timeouts that take days on a real server.
func TestTime(t *testing.T) {
	inBubble(t, awssqstest.Config{}, "a", nil, func(s *awssqstest.Server, w *world) {
		w.send("old", "", "")
		wait(4*24*time.Hour - time.Second)
		if n := len(s.Stored("a")); n != 1 {
			t.Errorf("%d messages a second before they expire, want 1", n)
		}
		h := w.handle()
		wait(time.Second)
		if got := w.receive(0) + w.remove(h) + w.change(h, 5); got != "[]okrefused" {
			t.Errorf("an expired message, in flight: %s", got)
		}
		w.send("held", "", "")
		h = w.handle()
		if got := w.change(h, 43200); got != "ok" {
			t.Errorf("12 hours: %s", got)
		}
		wait(time.Hour)
		if got := w.change(h, 43200) + w.change(h, 11*3600); got != "refusedok" {
			t.Errorf("more than 12 hours in all: %s", got)
		}
		wait(11 * time.Hour)
		if got := w.change(h, 10) + w.receive(0); got != "refused[held 2]" {
			t.Errorf("when they are over: %s", got)
		}
	})
	inBubble(t, awssqstest.Config{}, "a.fifo", nil, func(_ *awssqstest.Server, w *world) {
		told := w.send("a", "g", "1")
		wait(5*time.Minute - 1)
		told += w.send("b", "g", "1")
		wait(1)
		told += w.send("c", "g", "1")
		if told += w.receive(0); told != "okokok[a 1,c 1]" {
			t.Errorf("deduplication, before and after five minutes: %s", told)
		}
	})
}

func TestFIFOReceipts(t *testing.T) {
	inBubble(t, awssqstest.Config{}, "a.fifo", nil, func(_ *awssqstest.Server, w *world) {
		w.send("a", "g", "1")
		h := w.handle()
		wait(31 * time.Second)
		if got := w.remove(h) + w.receive(0) + w.remove(h); got != "refused[a 2]refused" {
			t.Errorf("a handle whose time is over: %s", got)
		}
	})
	inBubble(t, awssqstest.Config{}, "a.fifo", nil, func(_ *awssqstest.Server, w *world) {
		w.send("a", "g", "1")
		token := "t"
		ask := func() string {
			out, err := w.ReceiveMessage(w.t.Context(),
				&sqs.ReceiveMessageInput{QueueUrl: w.url, ReceiveRequestAttemptId: &token})
			if err != nil || len(out.Messages) == 0 {
				return fmt.Sprint("nothing ", err)
			}
			return *out.Messages[0].ReceiptHandle
		}
		first, second := ask(), ask()
		if first != second || strings.HasPrefix(first, "nothing") {
			t.Errorf("asked again: %s, then %s", first, second)
		}
		if got := w.remove(&second) + ask(); got != "oknothing <nil>" {
			t.Errorf("when it is deleted: %s", got)
		}
	})
}

func TestFaults(t *testing.T) {
	entryFault := func(op string, f awssqstest.EntryFault) func(awssqstest.Call) awssqstest.Fault {
		return func(c awssqstest.Call) awssqstest.Fault {
			if c.Operation == op {
				return awssqstest.Fault{Entries: map[int]awssqstest.EntryFault{0: f}}
			}
			return awssqstest.Fault{}
		}
	}
	for _, tt := range []struct {
		name  string
		fault func(awssqstest.Call) awssqstest.Fault
		want  string // send, messages, delete, messages
	}{
		{"none", nil, "ok1ok0"},
		{
			"an entry refused", entryFault("SendMessageBatch", awssqstest.EntryFault{Code: "InternalError"}),
			"InternalError0",
		},
		{"an entry done and reported as failed", entryFault("SendMessageBatch", awssqstest.EntryFault{Code: "InternalError", Done: true}), "InternalError1ok0"},
		{"a deletion forgotten", entryFault("DeleteMessageBatch", awssqstest.EntryFault{}), "ok1ok1"},
		{"before", func(c awssqstest.Call) awssqstest.Fault {
			return awssqstest.Fault{Before: map[bool]error{true: awssqstest.ErrConnection}[c.Operation == "SendMessageBatch"]}
		}, "broken0"},
		{"after", func(c awssqstest.Call) awssqstest.Fault {
			return awssqstest.Fault{After: map[bool]error{true: awssqstest.ErrConnection}[c.Operation == "SendMessageBatch"]}
		}, "broken1ok0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, awssqstest.Config{Fault: tt.fault}, "a", nil, func(s *awssqstest.Server, w *world) {
				got := w.send("a", "", "")
				if strings.Contains(got, "unexpected EOF") {
					got = "broken"
				}
				got += fmt.Sprint(len(s.Stored("a")))
				if len(s.Stored("a")) > 0 {
					got += w.remove(w.handle()) + fmt.Sprint(len(s.Stored("a")))
				}
				if got != tt.want {
					t.Errorf("%s, want %s", got, tt.want)
				}
			})
		})
	}
}

func TestOutages(t *testing.T) {
	inBubble(t, awssqstest.Config{}, "a", nil, func(s *awssqstest.Server, w *world) {
		ended := make(chan error, 1)
		go func() {
			_, err := s.ReceiveMessage(w.t.Context(), &sqs.ReceiveMessageInput{QueueUrl: w.url, WaitTimeSeconds: 20})
			ended <- err
		}()
		synctest.Wait()
		s.Down()
		if err := <-ended; !errors.Is(err, awssqstest.ErrConnection) {
			t.Errorf("a receive that waits when the server goes: %v", err)
		}
		_, err := s.GetQueueAttributes(w.t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: w.url})
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("while it is away: %v", err)
		}
		s.Up()
		if got := w.send("a", "", "") + w.receive(0); got != "ok[a 1]" {
			t.Errorf("when it is back: %s", got)
		}

		resume := s.Pause()
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
		defer cancel()
		if _, err := s.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: w.url}); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Errorf("while it is silent: %v", err)
		}
		go func() { wait(time.Second); resume() }()
		if got := w.send("b", "", ""); got != "ok" {
			t.Errorf("a call that lasts until it speaks: %s", got)
		}

		s.Deny("SendMessageBatch")
		if got := w.send("c", "", "") + w.receive(1); got != "AccessDenied[a 2,b 1]" {
			t.Errorf("one operation is denied: %s", got)
		}
		s.Deny()
		if got := w.send("c", "", ""); got != "ok" || s.Calls("SendMessageBatch") != 4 {
			t.Errorf("none is: %s; %d calls, want 4", got, s.Calls("SendMessageBatch"))
		}
	})
}

func TestShuffle(t *testing.T) {
	inBubble(t, awssqstest.Config{Shuffle: true}, "a", nil, func(_ *awssqstest.Server, w *world) {
		var sent, got []string
		for i := range 100 {
			sent = append(sent, fmt.Sprint(i))
			w.send(fmt.Sprint(i), "", "")
		}
		for range 10 {
			for _, m := range w.take(10, 0) {
				got = append(got, *m.Body)
			}
		}
		if len(got) != 100 || fmt.Sprint(got) == fmt.Sprint(sent) {
			t.Errorf("%d messages came, in the order of sending: %v", len(got), fmt.Sprint(got) == fmt.Sprint(sent))
		}
	})
}

func TestAttributes(t *testing.T) {
	inBubble(t, awssqstest.Config{Absent: []types.QueueAttributeName{"MessageRetentionPeriod"}}, "a", map[string]string{"VisibilityTimeout": "7"}, func(s *awssqstest.Server, w *world) {
		out, err := s.GetQueueAttributes(w.t.Context(),
			&sqs.GetQueueAttributesInput{QueueUrl: w.url, AttributeNames: []types.QueueAttributeName{"All"}})
		if err != nil || out.Attributes["VisibilityTimeout"] != "7" ||
			out.Attributes["MaximumMessageSize"] != "1048576" {
			t.Errorf("%v, %v", out, err)
		}
		if _, there := out.Attributes["MessageRetentionPeriod"]; there {
			t.Error("an attribute that is absent is there")
		}
		for name, attributes := range map[string]map[string]string{
			"no spaces": nil, "b.fifo": nil, "b": {"FifoQueue": "true"}, "c": {"VisibilityTimeout": "43201"},
			"d": {"Nonsense": "1"},
			"e": {"RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:test:123456789012:none","maxReceiveCount":3}`},
			"f": {"RedrivePolicy": `{"deadLetterTargetArn":"arn:aws:sqs:test:123456789012:a","maxReceiveCount":0}`},
			"a": {"VisibilityTimeout": "8"}, "g": {"ContentBasedDeduplication": "true"},
		} {
			if _, err := s.CreateQueue(w.t.Context(),
				&sqs.CreateQueueInput{QueueName: &name, Attributes: attributes}); err == nil {
				t.Errorf("queue %q with %v was made", name, attributes)
			}
		}
	})
}
