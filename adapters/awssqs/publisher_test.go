package awssqs_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/txonce/txonce/adapters/awssqs"
	"github.com/txonce/txonce/adapters/awssqs/awssqstest"
	"github.com/txonce/txonce/outbox"
)

func newPublisher(t *testing.T, api awssqs.API) *awssqs.Publisher {
	t.Helper()
	p, err := awssqs.NewPublisher(awssqs.PublisherConfig{Client: api})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func isUnavailable(err error) bool {
	var u *outbox.UnavailableError
	return errors.As(err, &u)
}

func isTopic(err error) bool {
	var fault *outbox.TopicError
	return errors.As(err, &fault)
}

// keyed are n messages with keys of their own.
func keyed(topic string, n int) (msgs []outbox.Message) {
	for i := range n {
		msgs = append(msgs, outbox.Message{
			ID: fmt.Sprint("m", i), Topic: topic, OrderingKey: fmt.Sprint("k", i),
			Payload: fmt.Append(nil, i),
		})
	}
	return msgs
}

// Batches hold ten messages and 1 MiB, attributes included: the fake, as SQS does, refuses larger ones.
func TestPublisherBatches(t *testing.T) {
	s := awssqstest.NewServer(awssqstest.Config{})
	queue, _ := makeQueue(t, s, false, nil)
	var msgs []outbox.Message
	for i, size := range []int{1 << 20, 1, 600_000, 500_000, 10, 500_000, 1<<20 + 1, 300_000, 300_000} {
		msgs = append(msgs, outbox.Message{ID: fmt.Sprint(i), Topic: queue, Payload: []byte(strings.Repeat("x", size))})
	}
	for i, err := range newPublisher(t, s).Publish(t.Context(), msgs) {
		if (err == nil) != (i != 6) {
			t.Errorf("message %d: %v", i, err)
		}
		if i == 6 && (!outbox.IsPermanent(err) || !strings.Contains(err.Error(), "1048577") ||
			!strings.Contains(err.Error(), "1048576")) {
			t.Errorf("%v; want a permanent error that says how large it is and may be", err)
		}
	}
	if n := s.Calls("SendMessageBatch"); n != 4 {
		t.Errorf("%d requests, want 4 for 4 batches", n)
	}
	if err := newPublisher(t, s).Publish(t.Context(),
		[]outbox.Message{{ID: "h", Topic: queue, Payload: []byte(strings.Repeat("x", 1<<20-10)), Headers: map[string]string{"h": "0123456789"}}})[0]; !outbox.IsPermanent(err) {
		t.Errorf("%v; attributes count too", err)
	}
	limited, _ := makeQueue(t, s, false, map[string]string{"MaximumMessageSize": "1024"})
	if err := newPublisher(t, s).Publish(t.Context(),
		[]outbox.Message{{ID: "l", Topic: limited, Payload: []byte(strings.Repeat("x", 2000))}})[0]; !outbox.IsPermanent(err) ||
		!strings.Contains(err.Error(), "2000") || !strings.Contains(err.Error(), "1024") {
		t.Errorf("%v; want a permanent error that says how large it is and may be", err)
	}
}

// A FIFO queue's groups are the keys, and no two keys share one.
func TestPublisherGroups(t *testing.T) {
	s := awssqstest.NewServer(awssqstest.Config{})
	queue, _ := makeQueue(t, s, true, nil)
	long := strings.Repeat("k", 129)
	var msgs []outbox.Message
	for i, key := range []string{
		"plain", "", "", "with space", "ünï", "\x00", "\xff", long, long + "x", "txonce-id:m1",
		"m1", "txonce-sha256:", "txonce-sha256:x",
	} {
		msgs = append(msgs, outbox.Message{
			ID: fmt.Sprint("m", i), Topic: queue, OrderingKey: key,
			Payload: []byte("p"),
		})
	}
	msgs[2].ID = strings.Repeat("i", 200)
	msgs[3].ID = "żółć"
	for i, err := range newPublisher(t, s).Publish(t.Context(), msgs) {
		if err != nil {
			t.Errorf("message %d: %v", i, err)
		}
	}
	groups := map[string]bool{}
	for _, m := range s.Stored(queue) {
		groups[m.GroupID] = true
	}
	if len(groups) != len(msgs) || !groups["plain"] || !groups["m1"] {
		t.Errorf("%d groups for %d keys: %v", len(groups), len(msgs), slices.Collect(maps.Keys(groups)))
	}
	if err := newPublisher(t, s).Publish(t.Context(),
		[]outbox.Message{{Topic: queue, OrderingKey: "k", Payload: []byte("p")}})[0]; !outbox.IsPermanent(err) {
		t.Errorf("without ID: %v; it would be dropped as a repeat", err)
	}
}

// Topics are names or URLs; a queue that was missing is found when it is there, and one that is gone is looked up
// again.
func TestPublisherTopics(t *testing.T) {
	s := awssqstest.NewServer(awssqstest.Config{})
	p := newPublisher(t, s)
	publish := func(topic string) error {
		t.Helper()
		return p.Publish(t.Context(), []outbox.Message{{ID: "1", Topic: topic, Payload: []byte("p")}})[0]
	}
	for _, topic := range []string{"no spaces", "orders.fifo.x", strings.Repeat("q", 81), "https://", "http://host"} {
		if err := publish(topic); !outbox.IsPermanent(err) {
			t.Errorf("topic %q: %v; want a permanent error", topic, err)
		}
	}
	if err := publish("later"); !isTopic(err) || outbox.IsPermanent(err) || isUnavailable(err) ||
		!strings.Contains(err.Error(), "create it") {
		t.Errorf("a missing queue: %v", err)
	}
	name := "later"
	made, err := s.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := errors.Join(publish("later"), publish(*made.QueueUrl)); err != nil {
			t.Error(err)
		}
	}
	if n := s.Calls("GetQueueUrl"); n != 2 {
		t.Errorf("%d lookups, want 2: one in vain, one that is remembered", n)
	}
	if _, err := s.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: made.QueueUrl}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(publish("later")); err == nil || outbox.IsPermanent(err) {
		t.Errorf("a deleted queue: %v", err)
	}
	_ = publish("later")
	if n := s.Calls("GetQueueUrl"); n != 3 {
		t.Errorf("%d lookups, want 3: a queue that is gone is looked up again", n)
	}
	s.Deny("SendMessageBatch", "GetQueueUrl")
	for topic, permission := range map[string]string{"other": "sqs:GetQueueUrl", *made.QueueUrl: "sqs:SendMessage"} {
		if err := publish(topic); !isTopic(err) || outbox.IsPermanent(err) || isUnavailable(err) ||
			!strings.Contains(err.Error(), permission) || !strings.Contains(err.Error(), topic) {
			t.Errorf("no permission: %v; want an error that names it and the queue", err)
		}
	}
}

// One queue that is slow does not hold up another, nor one batch the next.
func TestPublisherSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := awssqstest.NewServer(awssqstest.Config{})
		one, _ := makeQueue(t, s, false, nil)
		two, _ := makeQueue(t, s, true, nil)
		s.SetFault(func(awssqstest.Call) awssqstest.Fault { return awssqstest.Fault{Delay: time.Second} })
		began := time.Now()
		for i, err := range newPublisher(t, s).Publish(t.Context(), append(keyed(one, 50), keyed(two, 50)...)) {
			if err != nil {
				t.Errorf("message %d: %v", i, err)
			}
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("10 requests of a second each took %v, want 2 s: a lookup, and all at once", took)
		}
	})
}

func TestPublisherConfigRefusals(t *testing.T) {
	s := awssqstest.NewServer(awssqstest.Config{})
	for field, cfg := range map[string]awssqs.PublisherConfig{
		"Client":        {},
		"Client is a":   {Client: (*sqs.Client)(nil)},
		"Concurrency":   {Client: s, Concurrency: -1},
		"AcceptedRisks": {Client: s, AcceptedRisks: []awssqs.Risk{awssqs.RiskShortWindow}},
	} {
		if _, err := awssqs.NewPublisher(cfg); err == nil || !strings.Contains(err.Error(), "PublisherConfig."+field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	unchecked := sqs.New(sqs.Options{DisableMessageChecksumValidation: true})
	if _, err := awssqs.NewPublisher(awssqs.PublisherConfig{Client: unchecked, AcceptedRisks: []awssqs.Risk{awssqs.RiskUncheckedMessages}}); err != nil {
		t.Error(err)
	}
}

// Every message arrives unchanged, and in a form that SQS accepts.
func FuzzPublishedMessage(f *testing.F) {
	f.Add("key", []byte("payload"), "name", "value", 3)
	f.Add("", []byte{}, "", "", 12)
	f.Add("\x00\xff", []byte("\x00"), "AWS.x", "\x01", 9)
	f.Add("txonce-id:", []byte("\ufffe"), "txonce-headers", "{}", 8)
	f.Add("k", []byte(" \n"), ".a..b", "\uffff", 10)
	s := awssqstest.NewServer(awssqstest.Config{})
	name := "fuzz.fifo"
	if _, err := s.CreateQueue(f.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: map[string]string{"FifoQueue": "true"}}); err != nil {
		f.Fatal(err)
	}
	p, err := awssqs.NewPublisher(awssqs.PublisherConfig{Client: s})
	if err != nil {
		f.Fatal(err)
	}
	var n int
	var mu sync.Mutex
	f.Fuzz(func(t *testing.T, key string, payload []byte, header, value string, more int) {
		mu.Lock()
		defer mu.Unlock()
		n++
		want := outbox.Message{
			ID: fmt.Sprint(n), Topic: name, OrderingKey: key, Payload: payload,
			Headers: map[string]string{header: value, outbox.HeaderID: fmt.Sprint(n)},
		}
		for i := range min(max(more, 0), 20) {
			want.Headers[fmt.Sprint(header, i)] = value
		}
		if err := p.Publish(t.Context(), []outbox.Message{want})[0]; err != nil {
			if outbox.IsPermanent(err) && strings.Contains(err.Error(), "1048576") {
				return
			}
			t.Fatal(err)
		}
		all := s.Stored(name)
		got := all[len(all)-1]
		if _, err := s.PurgeQueue(t.Context(), &sqs.PurgeQueueInput{QueueUrl: urlOf(t, s, name)}); err != nil {
			t.Fatal(err)
		}
		k, body, headers, err := awssqs.Decode(got.Body, got.Attributes)
		if err != nil || k != key || string(body) != string(payload) || !maps.Equal(headers, want.Headers) {
			t.Errorf("%v: key %q, payload %q, headers %q; want %q, %q, %q", err, k, body, headers, key, payload,
				want.Headers)
		}
	})
}

func urlOf(t *testing.T, api awssqs.API, name string) *string {
	t.Helper()
	out, err := api.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: &name})
	if err != nil {
		t.Fatal(err)
	}
	return out.QueueUrl
}
