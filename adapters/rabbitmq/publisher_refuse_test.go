package rabbitmq_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/adapters/rabbitmq/internal/rabbitmqtest"
	"github.com/txonce/txonce/outbox"
)

func TestPublisherRefusesMessages(t *testing.T) {
	long := strings.Repeat("x", 256)
	for name, tt := range map[string]struct {
		msg  outbox.Message
		says string
	}{
		"payload": {
			outbox.Message{Topic: "a", Payload: make([]byte, 1001)},
			"1001 bytes, and PublisherConfig.MaxMessageBytes is 1000",
		},
		"headers": {
			outbox.Message{Topic: "a", Headers: map[string]string{"h": strings.Repeat("x", 5000)}},
			"PublisherConfig.FrameBytes",
		},
		"key": {
			outbox.Message{Topic: "a", OrderingKey: strings.Repeat("x", 5000)},
			"PublisherConfig.FrameBytes",
		},
		"header name": {outbox.Message{Topic: "a", Headers: map[string]string{long: ""}}, "has 256 bytes"},
		"CC": {
			outbox.Message{Topic: "a", Headers: map[string]string{"CC": "a@example.org"}},
			"the header CC as a list of further routing keys",
		},
		"BCC": {
			outbox.Message{Topic: "a", Headers: map[string]string{"BCC": ""}},
			"the header BCC as a list of further routing keys",
		},
		"topic":        {outbox.Message{Topic: long}, "at most 255"},
		"content type": {outbox.Message{Topic: "a", Headers: map[string]string{"content-type": strings.Repeat("x", 5000)}}, "one frame of 4096"},
	} {
		t.Run(name, func(t *testing.T) {
			faulty(t, rabbitmq.PublisherConfig{MaxMessageBytes: 1000, FrameBytes: 4096}, func(f *faultEnv) {
				tt.msg.ID = "too much"
				f.want(f.send(outbox.Message{ID: "1", Topic: "b"}, tt.msg, outbox.Message{ID: "2", Topic: "b"}), "",
					"permanent: "+tt.says, "")
				f.arrived("b", "1", "2")
				f.arrived("a")
				f.dialled(1)
			})
		})
	}
}

// TestPublisherRoutePanics: a message that Route panics for fails alone.
func TestPublisherRoutePanics(t *testing.T) {
	cfg := rabbitmq.PublisherConfig{Route: func(m *outbox.Message) (string, string) {
		if m.ID == "bad" {
			panic("no region")
		}
		return "", m.Topic
	}}
	faulty(t, cfg, func(f *faultEnv) {
		errs := f.send(outbox.Message{ID: "1", Topic: "b"}, outbox.Message{ID: "bad", Topic: "b"},
			outbox.Message{ID: "2", Topic: "b"})
		f.want(errs, "", `plain: rabbitmq: message "bad" of topic "b": PublisherConfig.Route panicked: no region`, "")
		f.arrived("b", "1", "2")
	})
}

// TestPublisherFillsFrame sends headers of all sizes around the limit. The server cuts the connection when the headers
// are too large, and the Publisher must not refuse headers that fit.
func TestPublisherFillsFrame(t *testing.T) {
	faulty(t, rabbitmq.PublisherConfig{}, func(f *faultEnv) {
		refused, sent := 0, 0
		for n := rabbitmq.DefaultFrameBytes - 300; n < rabbitmq.DefaultFrameBytes+10; n += 5 {
			errs := f.send(outbox.Message{ID: fmt.Sprint(n), Topic: "a", Headers: map[string]string{"h": strings.Repeat("x", n)}})
			if errs[0] == nil {
				sent++
				continue
			}
			refused++
			f.want(errs, "permanent: one frame")
		}
		if refused < 3 || sent < 30 {
			t.Errorf("%d refused, %d sent", refused, sent)
		}
		f.dialled(1)
	})
}

func TestPublisherRefusesItsConfig(t *testing.T) {
	dial := rabbitmqtest.NewServer(rabbitmqtest.Config{}).Dial
	for says, cfg := range map[string]rabbitmq.PublisherConfig{
		"PublisherConfig.Dial is required":             {},
		"PublisherConfig.Exchange is \"e\", and Route": {Dial: dial, Exchange: "e", Route: byExchange},
		"PublisherConfig.Exchange has 300 bytes":       {Dial: dial, Exchange: strings.Repeat("e", 300)},
		"PublisherConfig.MaxMessageBytes is -1":        {Dial: dial, MaxMessageBytes: -1},
		"PublisherConfig.FrameBytes is 100":            {Dial: dial, FrameBytes: 100},
	} {
		if _, err := rabbitmq.NewPublisher(cfg); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want an error that says %s", err, says)
		}
	}
	_, err := rabbitmq.NewPublisher(rabbitmq.PublisherConfig{MaxMessageBytes: -1, FrameBytes: 1})
	for _, says := range []string{"Dial", "MaxMessageBytes", "FrameBytes"} { // all at once
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want it to name %s", err, says)
		}
	}
}
