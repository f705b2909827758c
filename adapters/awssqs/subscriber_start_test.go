package awssqs_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/txonce/txonce/adapters/awssqs"
	"github.com/txonce/txonce/adapters/awssqs/awssqstest"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/brokers/testsqs"
)

// limited is a Processor with this MaxAttempts.
type limited struct {
	process
	attempts int
}

func (l limited) MaxAttempts() int { return l.attempts }

// windowed is a Processor with this Window.
type windowed struct {
	process
	window  time.Duration
	started *atomic.Bool // Start was called
	sources *[]string    // AddSource was called with these
}

func (w windowed) AddSource(source string) { *w.sources = append(*w.sources, source) }

func (w windowed) Start(context.Context) error {
	w.started.Store(true)
	return nil
}

func (w windowed) Window() time.Duration { return w.window }

func TestWhatIsRefusedAtTheStart(t *testing.T) {
	const dead = "arn:aws:sqs:test:123456789012:dead"
	redrive := func(n string) map[string]string {
		return map[string]string{"RedrivePolicy": `{"deadLetterTargetArn":"` + dead + `","maxReceiveCount":` + n + `}`}
	}
	day := 24 * time.Hour
	for _, c := range []struct {
		name       string
		fifo       bool
		attributes map[string]string
		absent     []types.QueueAttributeName
		cfg        awssqs.SubscriberConfig
		window     time.Duration
		attempts   int
		deny       string
		queue      string
		want       []string // in the error; none: it runs
		warns      string
	}{
		{name: "a queue that is missing", queue: "nowhere", want: []string{"queue nowhere", "does not exist", "create it"}},
		{name: "a URL of nothing", queue: "https://sqs.test/123456789012/nowhere", want: []string{"does not exist"}},
		{
			name: "no permission to look it up", deny: "GetQueueUrl",
			want: []string{"queue orders", "sqs:GetQueueUrl", "URL"},
		},
		{
			name: "no permission to look at it", deny: "GetQueueAttributes",
			want: []string{"allow this client sqs:GetQueueAttributes"},
		},
		{
			name: "no permission to receive", deny: "ReceiveMessage",
			want: []string{"allow this client sqs:ReceiveMessage"},
		},
		{name: "redrive too soon", attributes: redrive("3"), want: []string{dead, "received 3 times", "tries it 3 times", "maxReceiveCount to 10", "RiskRedrive"}},
		{name: "redrive too soon, in quotes", attributes: redrive(`"2"`), want: []string{"2 times"}},
		{
			name: "redrive too soon for many attempts", attributes: redrive("20"), attempts: 20,
			want: []string{"tries it 20 times", "maxReceiveCount to 21"},
		},
		{name: "redrive soon", attributes: redrive("4"), warns: "maxReceiveCount=4 attempts=3"},
		{name: "redrive soon, more attempts", attributes: redrive("9"), attempts: 8, warns: "crashes"},
		{name: "redrive after many attempts", attributes: redrive("21"), attempts: 20},
		{
			name: "redrive too soon, allowed", attributes: redrive("3"),
			cfg: awssqs.SubscriberConfig{AcceptedRisks: []awssqs.Risk{awssqs.RiskRedrive}}, warns: "moved away",
		},
		{name: "redrive late enough", attributes: redrive("10")},
		{
			name: "retention longer than the window", window: 3 * day,
			want: []string{"96h0m0s", "Window to 96h", "RiskShortWindow"},
		},
		{
			name: "retention longer than the window, allowed", window: 3 * day,
			cfg: awssqs.SubscriberConfig{AcceptedRisks: []awssqs.Risk{awssqs.RiskShortWindow}}, warns: "forgotten",
		},
		{name: "retention within the window", window: 4 * day},
		{
			name: "retention unknown", window: day, absent: []types.QueueAttributeName{"MessageRetentionPeriod"},
			warns: "does not say how long",
		},
		{
			name: "visibility timeout of zero", attributes: map[string]string{"VisibilityTimeout": "0"},
			want: []string{"visibility timeout is 0", "VisibilityTimeout"},
		},
		{
			name: "visibility timeout of zero, but ours", attributes: map[string]string{"VisibilityTimeout": "0"},
			cfg: awssqs.SubscriberConfig{VisibilityTimeout: time.Minute},
		},
		{
			name: "order on a FIFO queue", fifo: true, cfg: awssqs.SubscriberConfig{OrderBy: awssqs.ByKey},
			want: []string{"OrderBy", "FIFO"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := newStall(t, awssqstest.Config{Absent: c.absent}, c.fifo, nil)
				if _, err := s.CreateQueue(t.Context(),
					&sqs.CreateQueueInput{QueueName: aws.String("dead")}); err != nil {
					t.Fatal(err)
				}
				if _, err := s.SetQueueAttributes(t.Context(),
					&sqs.SetQueueAttributesInput{QueueUrl: &s.url, Attributes: c.attributes}); err != nil {
					t.Fatal(err)
				}
				s.Deny(c.deny)
				if c.queue != "" {
					s.name = c.queue
				}
				var started atomic.Bool
				var sources []string
				if c.window > 0 {
					c.cfg.Processor = windowed{process{s, nil}, c.window, &started, &sources}
				}
				if c.attempts > 0 {
					c.cfg.Processor = limited{process{s, nil}, c.attempts}
				}
				s.start(c.cfg, nil)
				elapse(time.Minute)
				err := s.stop()
				if c.window > 0 && (started.Load() != (len(c.want) == 0) ||
					!slices.Equal(sources, []string{"sqs queue orders"})) {
					t.Errorf("the Processor was started: %v, with sources %q; a start registers a window, and one that is refused must not be", started.Load(), sources)
				}
				if len(c.want) == 0 {
					if err != nil {
						t.Errorf("Run = %v", err)
					}
					if warned := s.log.Count("level=WARN"); c.warns == "" && warned != 0 ||
						c.warns != "" && (warned != 1 || s.log.Count(c.warns) == 0) {
						t.Errorf("log %s; want a warning with %q", s.log.String(), c.warns)
					}
					return
				}
				for _, want := range c.want {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("Run = %v; want %q in it", err, want)
					}
				}
			})
		})
	}
}

func TestConfigIsChecked(t *testing.T) {
	good := awssqs.SubscriberConfig{
		Client: awssqstest.NewServer(awssqstest.Config{}), Queue: "orders",
		Processor: process{},
	}
	if _, err := awssqs.NewSubscriber(good); err != nil {
		t.Errorf("NewSubscriber = %v", err)
	}
	for _, c := range []struct {
		field string
		spoil func(*awssqs.SubscriberConfig)
	}{
		{"Client", func(c *awssqs.SubscriberConfig) { c.Client = nil }},
		{"Client", func(c *awssqs.SubscriberConfig) { c.Client = (*sqs.Client)(nil) }},
		{"Queue", func(c *awssqs.SubscriberConfig) { c.Queue = "" }},
		{"Queue", func(c *awssqs.SubscriberConfig) { c.Queue = "no such name" }},
		{"Processor", func(c *awssqs.SubscriberConfig) { c.Processor = nil }},
		{"Concurrency", func(c *awssqs.SubscriberConfig) { c.Concurrency = -1 }},
		{"MaxBatch", func(c *awssqs.SubscriberConfig) { c.MaxBatch = -1 }},
		{"MaxBatchBytes", func(c *awssqs.SubscriberConfig) { c.MaxBatchBytes = -1 }},
		{"MaxUnfinished", func(c *awssqs.SubscriberConfig) { c.MaxUnfinished = -1 }},
		{"Receivers", func(c *awssqs.SubscriberConfig) { c.Receivers = -1 }},
		{"WaitTime", func(c *awssqs.SubscriberConfig) { c.WaitTime = 21 * time.Second }},
		{"WaitTime", func(c *awssqs.SubscriberConfig) { c.WaitTime = 1500 * time.Millisecond }},
		{"VisibilityTimeout", func(c *awssqs.SubscriberConfig) { c.VisibilityTimeout = 13 * time.Hour }},
		{"VisibilityTimeout", func(c *awssqs.SubscriberConfig) { c.VisibilityTimeout = time.Millisecond }},
		{"Grace", func(c *awssqs.SubscriberConfig) { c.Grace = -1 }},
		{"AcceptedRisks", func(c *awssqs.SubscriberConfig) { c.AcceptedRisks = []awssqs.Risk{"Everything"} }},
	} {
		cfg := good
		c.spoil(&cfg)
		if _, err := awssqs.NewSubscriber(cfg); err == nil || !strings.Contains(err.Error(),
			"SubscriberConfig."+c.field+" ") {
			t.Errorf("NewSubscriber = %v; want an error that names %s", err, c.field)
		}
	}
}

func TestAQueueThatIsClosedWhileRunningEndsRun(t *testing.T) {
	for _, c := range []struct {
		name  string
		close func(s *stall)
		want  string
	}{
		{"deleted", func(s *stall) {
			if _, err := s.DeleteQueue(s.t.Context(), &sqs.DeleteQueueInput{QueueUrl: &s.url}); err != nil {
				s.t.Error(err)
			}
		}, "does not exist"},
		{"receiving is denied", func(s *stall) { s.Deny("ReceiveMessage") }, "sqs:ReceiveMessage"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				s := newStall(t, awssqstest.Config{}, false, nil)
				s.send("", "a")
				s.start(awssqs.SubscriberConfig{WaitTime: time.Second}, nil)
				elapse(30 * time.Second)
				c.close(s)
				elapse(20 * time.Second)
				if s.log.Count("trouble with SQS") != 1 {
					t.Error("the trouble is not logged once")
				}
				elapse(40 * time.Second) // now it has given up by itself
				if err := s.stop(); err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("Run = %v", err)
				}
			})
		})
	}
}

func TestDeletingIsDenied(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStall(t, awssqstest.Config{}, false, nil)
		s.Deny("DeleteMessageBatch")
		s.send("", "a")
		s.start(awssqs.SubscriberConfig{}, nil)
		elapse(time.Minute)
		if err := s.stop(); err == nil || !strings.Contains(err.Error(), "sqs:DeleteMessage") {
			t.Errorf("Run = %v", err)
		}
		s.left(1)
	})
}

func TestARejectEndsRunAndKeepsTheMessage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStall(t, awssqstest.Config{}, false, nil)
		s.send("", "a")
		s.start(awssqs.SubscriberConfig{}, func(context.Context, *consumer.Message) error { return errNotYet })
		elapse(time.Minute)
		err := s.stop()
		id := s.Stored(s.name)[0].MessageID
		if err == nil || !strings.Contains(err.Error(), "orders/"+id) {
			t.Errorf("Run = %v; want an error with the position orders/%s", err, id)
		}
		s.left(1)
	})
}

// TestAStopLosesNoAnswerThatIsOnItsWay: messages that SQS has just handed out go back at once. If their answer were
// dropped, SQS would hold them for a visibility timeout.
func TestAStopLosesNoAnswerThatIsOnItsWay(t *testing.T) {
	for _, fifo := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			s := newStall(t, awssqstest.Config{}, fifo, map[string]string{"VisibilityTimeout": "600"})
			s.send("g", "a", "b", "c")
			slow := &slowAnswers{API: s.Server, taken: make(chan struct{}, 1)}
			s.startWith(slow, awssqs.SubscriberConfig{}, nil)
			<-slow.taken
			began := time.Now()
			s.stopped()
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("fifo %v: Run took %v to end", fifo, took)
			}
			for _, m := range s.Stored(s.name) {
				if time.Now().Before(m.VisibleAt) || s.times(m.Body) != 0 {
					t.Errorf("fifo %v: %s is held for %v more, and was handled %d times", fifo, m.Body,
						time.Until(m.VisibleAt), s.times(m.Body))
				}
			}
			s.left(3)
		})
	}
}

// slowAnswers is an SQS whose answers with messages take a second to arrive, and are lost when the request was
// cancelled.
type slowAnswers struct {
	awssqs.API
	taken chan struct{}
}

func (s *slowAnswers) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput,
	opts ...func(*sqs.Options),
) (*sqs.ReceiveMessageOutput, error) {
	out, err := s.API.ReceiveMessage(ctx, in, opts...)
	if err != nil || len(out.Messages) == 0 {
		return out, err
	}
	select {
	case s.taken <- struct{}{}:
	default:
	}
	select {
	case <-time.After(time.Second):
		return out, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func TestLongPollingDoesNotDelayTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newStall(t, awssqstest.Config{}, false, nil)
		s.start(awssqs.SubscriberConfig{}, nil)
		elapse(5 * time.Second)
		began := time.Now()
		s.stopped()
		if took := time.Since(began); took > time.Second {
			t.Errorf("Run took %v to end", took)
		}
	})
}

func TestElasticMQIsCheckedAtTheStart(t *testing.T) {
	t.Parallel()
	client := testsqs.Server(t)
	dead := testsqs.Queue(t, client, nil)
	for _, c := range []struct{ name, queue, want string }{
		{"missing", "nowhere-" + fmt.Sprint(time.Now().UnixNano()), "does not exist"},
		{"redrive", testsqs.Queue(t, client, testsqs.Redrive(t, client, dead, 3)), "3 times"},
	} {
		sub, err := awssqs.NewSubscriber(awssqs.SubscriberConfig{
			Client: client, Queue: c.queue, Processor: process{}, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := sub.Run(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Run = %v", c.name, err)
		}
	}
}
