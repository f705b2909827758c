package awssqs_test

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/txonce/txonce/adapters/awssqs"
	"github.com/txonce/txonce/dedup"
)

// A number in another unit than this source reads is refused with a hint, and a message without a time has none.
func TestTimesInOtherUnits(t *testing.T) {
	at := time.Date(2026, 11, 28, 17, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		number int64
		want   string // of the error; "time": it is at; "none": it has no time
	}{
		{0, "none"},
		{-1, "none"},
		{math.MinInt64, "none"},
		{at.UnixMilli(), "time"},
		{at.Unix(), "seconds in place of milliseconds"},
		{at.UnixMicro(), "microseconds in place of milliseconds"},
		{at.UnixNano(), "nanoseconds in place of milliseconds"},
		{math.MaxInt64, "of the year"},
	} {
		got := awssqs.ToMessage("orders", types.Message{Attributes: map[string]string{"SentTimestamp": strconv.FormatInt(c.number, 10)}}).Time
		err := dedup.Record{Key: dedup.Key{Consumer: "billing", ID: "1"}, Time: got}.Validate()
		switch {
		case c.want == "none" && got.IsZero() && err == nil, c.want == "time" && got.Equal(at) && err == nil:
		case err == nil || !errors.Is(err, dedup.ErrFuture) || !strings.Contains(err.Error(), c.want):
			t.Errorf("%d: %v, error %v; want %s", c.number, got, err, c.want)
		}
	}
}
