package rabbitmq_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/txonce/txonce/adapters/rabbitmq"
	"github.com/txonce/txonce/dedup"
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
		got := rabbitmq.ReadTimestamp(c.setting, rabbitmq.ToMessage("orders", &amqp.Delivery{Timestamp: time.Unix(c.number, 0)}).Time)
		err := dedup.Record{Key: dedup.Key{Consumer: "billing", ID: "1"}, Time: got}.Validate()
		switch {
		case c.want == "none" && got.IsZero() && err == nil, c.want == "time" && got.Equal(at) && err == nil:
		case err == nil || !errors.Is(err, dedup.ErrFuture) || !strings.Contains(err.Error(), c.want):
			t.Errorf("%s, %d: %v, error %v; want %s", c.setting, c.number, got, err, c.want)
		}
	}
}
