package awssqs_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"

	"github.com/txonce/txonce/adapters/awssqs/awssqstest"
	"github.com/txonce/txonce/outbox"
)

// Each error of SQS, for an entry and for a whole request, and its classification.
func TestPublisherAnswersOfSQS(t *testing.T) {
	const (
		message = "the message's, for now"
		forGood = "the message's, for good"
		server  = "the server's"
		topic   = "the queue's"
	)
	blamed := func(err error) string {
		switch {
		case outbox.IsPermanent(err):
			return forGood
		case isUnavailable(err):
			return server
		case isTopic(err):
			return topic
		}
		return message
	}
	for _, tt := range []struct {
		code   string
		sender bool
		entry  string // to one entry of ten; empty: that is not tried
		whole  string // to the request
	}{
		{"InvalidMessageContents", true, forGood, forGood},
		{"InvalidParameterValue", true, forGood, forGood},
		{"MissingParameter", true, forGood, forGood},
		{"SomethingNew", true, forGood, message},
		{"SomethingNew", false, server, ""},
		{"InternalError", false, server, server},
		{"ServiceUnavailable", false, server, server},
		{"AWS.SimpleQueueService.NonExistentQueue", true, topic, topic},
		{"AccessDenied", true, topic, topic},
		{"KMS.DisabledException", true, topic, topic},
		{"KmsAccessDenied", true, topic, topic},
		{"RequestThrottled", true, server, server},
		{"ThrottlingException", true, server, server},
		{"InvalidClientTokenId", true, server, server},
		{"ExpiredToken", true, server, server},
		{"AWS.SimpleQueueService.BatchRequestTooLong", true, forGood, forGood},
		{"com.amazonaws.sqs#RequestThrottled", true, server, server},
	} {
		t.Run(fmt.Sprint(tt.code, tt.sender), func(t *testing.T) {
			s := awssqstest.NewServer(awssqstest.Config{})
			queue, _ := makeQueue(t, s, false, nil)
			s.SetFault(func(c awssqstest.Call) awssqstest.Fault {
				if c.Operation != "SendMessageBatch" {
					return awssqstest.Fault{}
				}
				return awssqstest.Fault{Entries: map[int]awssqstest.EntryFault{3: {Code: tt.code, SenderFault: tt.sender}}}
			})
			for i, err := range newPublisher(t, s).Publish(t.Context(), keyed(queue, 10)) {
				switch {
				case i != 3 && err != nil:
					t.Errorf("message %d: %v; only message 3 was refused", i, err)
				case i == 3 && (err == nil || blamed(err) != tt.entry || !strings.Contains(err.Error(), queue) ||
					!strings.Contains(err.Error(), tt.code)):
					t.Errorf("%v; want the fault to be %s, and the queue and the code to be named", err, tt.entry)
				}
			}
			if n := len(s.Stored(queue)); n != 9 {
				t.Errorf("%d messages arrived, want 9", n)
			}
			if tt.whole == "" {
				return
			}
			s.SetFault(func(c awssqstest.Call) awssqstest.Fault {
				if c.Operation != "SendMessageBatch" {
					return awssqstest.Fault{}
				}
				return awssqstest.Fault{Before: &smithy.GenericAPIError{Code: tt.code, Message: "no"}}
			})
			for _, err := range newPublisher(t, s).Publish(t.Context(), keyed(queue, 2)) {
				if err == nil || blamed(err) != tt.whole || !strings.Contains(err.Error(), queue) ||
					!strings.Contains(err.Error(), tt.code) {
					t.Errorf("%v; want the fault to be %s, and the queue and the code to be named", err, tt.whole)
				}
			}
		})
	}
}

// A message without an answer of SQS counts as not confirmed, whatever happened to it.
type silentAbout struct {
	*awssqstest.Server
	id string
}

func (s silentAbout) SendMessageBatch(ctx context.Context, in *sqs.SendMessageBatchInput,
	opts ...func(*sqs.Options),
) (*sqs.SendMessageBatchOutput, error) {
	out, err := s.Server.SendMessageBatch(ctx, in, opts...)
	if err == nil {
		for i, e := range out.Successful {
			if *e.Id == s.id {
				out.Successful = slices.Delete(out.Successful, i, i+1)
				break
			}
		}
	}
	return out, err
}

func TestPublisherCountsOnlyWhatIsNamed(t *testing.T) {
	s := awssqstest.NewServer(awssqstest.Config{})
	queue, _ := makeQueue(t, s, false, nil)
	for i, err := range newPublisher(t, silentAbout{s, "4"}).Publish(t.Context(), keyed(queue, 10)) {
		if (err == nil) != (i != 4) || outbox.IsPermanent(err) || isUnavailable(err) {
			t.Errorf("message %d: %v", i, err)
		}
	}
}

// When a request is refused as a whole because of one message, the other messages are published.
func TestPublisherRequestRefusedForOneMessage(t *testing.T) {
	s := awssqstest.NewServer(awssqstest.Config{Fault: func(c awssqstest.Call) awssqstest.Fault {
		if c.Operation == "SendMessageBatch" && slices.Contains(c.Entries, "7") {
			return awssqstest.Fault{Before: &smithy.GenericAPIError{Code: "InvalidParameterValue", Message: "one is bad"}}
		}
		return awssqstest.Fault{}
	}})
	queue, _ := makeQueue(t, s, true, nil)
	for i, err := range newPublisher(t, s).Publish(t.Context(), keyed(queue, 20)) {
		if (err == nil) != (i != 7) || outbox.IsPermanent(err) != (i == 7) {
			t.Errorf("message %d: %v", i, err)
		}
	}
	if n := len(s.Stored(queue)); n != 19 {
		t.Errorf("%d messages arrived, want 19", n)
	}
}

// A queue that does not answer must not keep the neighbours of a bad message in another queue from being published.
func TestPublisherSplitsARefusedRequestAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := awssqstest.NewServer(awssqstest.Config{})
		bad, _ := makeQueue(t, s, true, nil)
		slow, _ := makeQueue(t, s, true, nil)
		s.SetFault(func(c awssqstest.Call) awssqstest.Fault {
			switch {
			case c.Operation == "SendMessageBatch" && strings.HasSuffix(c.Queue, slow):
				return awssqstest.Fault{Delay: time.Hour}
			case c.Operation == "SendMessageBatch" && slices.Contains(c.Entries, "7"):
				return awssqstest.Fault{Before: &smithy.GenericAPIError{Code: "InvalidParameterValue", Message: "one is bad"}}
			}
			return awssqstest.Fault{}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		for i, err := range newPublisher(t, s).Publish(ctx, append(keyed(bad, 20), keyed(slow, 1)...)) {
			if (err == nil) != (i != 7 && i != 20) || outbox.IsPermanent(err) != (i == 7) {
				t.Errorf("message %d: %v", i, err)
			}
		}
	})
}

// A lost answer leaves it open whether a message arrived; sent again to a FIFO queue, it is there once.
func TestPublisherLostAnswers(t *testing.T) {
	for _, fifo := range []bool{false, true} {
		s := awssqstest.NewServer(awssqstest.Config{})
		queue, _ := makeQueue(t, s, fifo, nil)
		s.SetFault(func(c awssqstest.Call) awssqstest.Fault {
			if c.Operation == "SendMessageBatch" && c.Nth == 1 {
				return awssqstest.Fault{After: awssqstest.ErrConnection}
			}
			return awssqstest.Fault{}
		})
		p := newPublisher(t, s)
		if err := p.Publish(t.Context(), keyed(queue, 1))[0]; !isUnavailable(err) {
			t.Errorf("fifo %v: %v; want the server to be blamed", fifo, err)
		}
		if err := p.Publish(t.Context(), keyed(queue, 1))[0]; err != nil {
			t.Errorf("fifo %v: %v", fifo, err)
		}
		want := 2
		if fifo {
			want = 1
		}
		if n := len(s.Stored(queue)); n != want {
			t.Errorf("fifo %v: it is there %d times, want %d", fifo, n, want)
		}
	}
}
