package rabbitmq_test

import (
	"strings"
	"testing"
	"time"

	"github.com/txonce/txonce/adapters/rabbitmq"
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
