package deliver_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/deliver"
)

type single func() error

func (s single) Process(context.Context, *consumer.Message) error { return s() }

type several struct {
	single
	answers int
}

func (s several) ProcessBatch(context.Context, []*consumer.Message) []error {
	err := s.single()
	errs := make([]error, s.answers)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

func TestCall(t *testing.T) {
	fails := single(func() error { return errReject })
	panics := single(func() error { panic(errReject) })
	ends := single(func() error { runtime.Goexit(); return nil })
	for _, c := range []struct {
		name     string
		p        consumer.Processor
		messages int
		says     string
	}{
		{"one by one", fails, 1, errReject.Error()},
		{"a batch", several{fails, 3}, 3, errReject.Error()},
		{"too few answers", several{fails, 1}, 3, "1 answers for 3 messages"},
		{"too many answers", several{fails, 4}, 3, "4 answers for 3 messages"},
		{"a panic", panics, 1, "call_test.go"}, // where it came from
		{"a panic in a batch", several{panics, 3}, 3, "call_test.go"},
		{"an end of the goroutine", ends, 1, "deliver_test.single ended its goroutine"},
		{"an end of the goroutine in a batch", several{ends, 3}, 3, "deliver_test.several ended its goroutine"},
	} {
		t.Run(c.name, func(t *testing.T) {
			msgs := make([]*consumer.Message, c.messages)
			for i := range msgs {
				msgs[i] = &consumer.Message{}
			}
			errs := deliver.Call(t.Context(), c.p, msgs)
			if len(errs) != c.messages {
				t.Fatalf("%d answers for %d messages", len(errs), c.messages)
			}
			for _, err := range errs {
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("answer %v; want %q in it", err, c.says)
				}
				if strings.Contains(c.name, "panic") && !errors.Is(err, errReject) {
					t.Errorf("answer %v hides what the panic's value was", err)
				}
			}
		})
	}
}
