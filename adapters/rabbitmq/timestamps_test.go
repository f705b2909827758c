package rabbitmq_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/internal/test/brokers/testrabbitmq"
)

// A timestamp is read as the setting says, and a message without one has no time.
func TestTimestamps(t *testing.T) {
	at := time.Date(2026, 11, 28, 17, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		setting rabbitmq.Timestamps
		number  int64
		want    time.Time
	}{
		{rabbitmq.TimestampsInSeconds, at.Unix(), at},
		{rabbitmq.TimestampsInMilliseconds, at.UnixMilli(), at},
		{rabbitmq.TimestampsIgnored, at.Unix(), time.Time{}},
	} {
		if got := rabbitmq.ReadTimestamp(c.setting, time.Unix(c.number, 0)); !got.Equal(c.want) {
			t.Errorf("%s: %v, want %v", c.setting, got, c.want)
		}
		if got := rabbitmq.ReadTimestamp(c.setting, time.Time{}); !got.IsZero() {
			t.Errorf("%s: a message without timestamp has the time %v", c.setting, got)
		}
	}
	_, err := rabbitmq.NewSubscriber(rabbitmq.SubscriberConfig{Timestamps: "hours"})
	if err == nil || !strings.Contains(err.Error(), "Timestamps") {
		t.Errorf("a wrong unit: %v", err)
	}
}

// A number of milliseconds goes through RabbitMQ as it was written.
func TestTimestampsOfAServer(t *testing.T) {
	t.Parallel()
	url := testrabbitmq.Server(t)
	at := time.Date(2026, 11, 28, 17, 0, 0, 0, time.UTC)
	for setting, c := range map[rabbitmq.Timestamps]struct {
		number int64
		want   time.Time
	}{
		rabbitmq.TimestampsInSeconds:      {at.Unix(), at},
		rabbitmq.TimestampsInMilliseconds: {at.UnixMilli(), at},
		rabbitmq.TimestampsIgnored:        {at.UnixMilli(), time.Time{}},
	} {
		t.Run(string(setting), func(t *testing.T) {
			t.Parallel()
			queue, p := testrabbitmq.Queue(t, url, nil), &answers{}
			t.Cleanup(func() { deleteRetryQueues(t, url, queue) })
			send(t, dialer(url), queue, amqp.Publishing{MessageId: "m", Timestamp: time.Unix(c.number, 0)})
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			s := ownSubscriber(t, rabbitmq.SubscriberConfig{
				Dial: dialer(url), Queue: queue, Processor: p,
				Timestamps: setting,
			})
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			await(t, "the message", func() bool { return len(p.all()) > 0 })
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if got := p.all()[0].Time; !got.Equal(c.want) {
				t.Errorf("%d is read as %v, want %v", c.number, got, c.want)
			}
		})
	}
}

// A number in another unit than the setting says is refused with a hint, and a message without a timestamp has no time.
func TestTimesInOtherUnits(t *testing.T) {
	at := time.Date(2026, 11, 28, 17, 0, 0, 0, time.UTC)
	const sec, ms = rabbitmq.TimestampsInSeconds, rabbitmq.TimestampsInMilliseconds
	for _, c := range []struct {
		setting rabbitmq.Timestamps
		number  int64
		want    string // of the error; "time": it is at; "none": it has no time
	}{
		{sec, 0, "none"},
		{sec, -1, "none"},
		{sec, math.MinInt64, "none"},
		{sec, at.Unix(), "time"},
		{sec, at.UnixMilli(), "milliseconds in place of seconds"},
		{sec, at.UnixMicro(), "microseconds in place of seconds"},
		{sec, at.UnixNano(), "nanoseconds in place of seconds"},
		{ms, 0, "none"},
		{ms, -1, "none"},
		{ms, at.Unix(), "seconds in place of milliseconds"},
		{ms, at.UnixMilli(), "time"},
		{ms, at.UnixMicro(), "microseconds in place of milliseconds"},
		{ms, at.UnixNano(), "nanoseconds in place of milliseconds"},
		{rabbitmq.TimestampsIgnored, at.UnixNano(), "none"},
	} {
		got := rabbitmq.ReadTimestamp(c.setting, rabbitmq.ToMessage("orders",
			&amqp.Delivery{Timestamp: time.Unix(c.number, 0)}).Time)
		err := dedup.Record{Key: dedup.Key{Consumer: "billing", ID: "1"}, Time: got}.Validate()
		switch {
		case c.want == "none" && got.IsZero() && err == nil, c.want == "time" && got.Equal(at) && err == nil:
		case err == nil || !errors.Is(err, dedup.ErrFuture) || !strings.Contains(err.Error(), c.want):
			t.Errorf("%s, %d: %v, error %v; want %s", c.setting, c.number, got, err, c.want)
		}
	}
}
