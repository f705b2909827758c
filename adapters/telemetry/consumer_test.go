package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/txonce/txonce/adapters/telemetry"
	"github.com/txonce/txonce/adapters/telemetry/internal/provoke"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/driver"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/observe"
)

// increase() of a counter that is born at 1 is 0: no alert would fire for the first dead letter.
func TestCountersAreBornAtZero(t *testing.T) {
	r := newRig(t, telemetry.Config{})
	r.Consumer(telemetry.ConsumerConfig{Name: "billing", Topics: []string{"orders"}})
	born := map[string]bool{}
	for set, n := range values(t, r.collect(t)["txonce.deliveries"]) {
		if n != 0 {
			t.Errorf("%s is %d before the first message", set, n)
		}
		for _, label := range strings.Split(set, ",") {
			born[label] = true
		}
	}
	for _, outcome := range observe.Outcomes() {
		if !born["outcome="+string(outcome)] {
			t.Errorf("no counter of outcome %s", outcome)
		}
	}
	for _, cause := range observe.Causes() {
		if !born["cause="+string(cause)] {
			t.Errorf("no counter of cause %s", cause)
		}
	}
	attempts := values(t, r.collect(t)["txonce.attempts"])
	for _, result := range observe.Results() {
		if _, ok := attempts[fmt.Sprintf("consumer=billing,result=%s,retry=false", result)]; !ok {
			t.Errorf("no counter of result %s", result)
		}
	}
	paused := values(t, r.collect(t)["txonce.paused"])
	if n, ok := paused["cause=database,consumer=billing"]; !ok || n != 0 {
		t.Errorf("txonce.paused: %v", paused)
	}
}

// A gap is a loss, and there may be only one.
func TestSourceEventsAreBornAtZero(t *testing.T) {
	r := newRig(t, telemetry.Config{})
	hooks := r.Subscriber("kafka", "billing", "orders")
	const gap = "event=gap,messaging.system=kafka,source=orders"
	if n, ok := values(t, r.collect(t)["txonce.source.events"])[gap]; !ok || n != 0 {
		t.Errorf("before the first gap: %d, exported: %t", n, ok)
	}
	hooks.Gap(t.Context(), driver.SourceEvent{System: "kafka", Source: "orders"})
	if n := values(t, r.collect(t)["txonce.source.events"])[gap]; n != 1 {
		t.Errorf("after a gap: %d", n)
	}
}

// One database that went back is one event, and all messages that are read again are counted.
func TestADatabaseThatWentBackIsCounted(t *testing.T) {
	r := newRig(t, telemetry.Config{})
	hooks := r.Subscriber("kafka", "billing", "orders")
	const orders = ",messaging.system=kafka,source=orders"
	want := func(rewinds, again int64) {
		t.Helper()
		got := values(t, r.collect(t)["txonce.source.events"])
		for event, n := range map[string]int64{"event=went_back": rewinds, "event=read_again": again} {
			if found, ok := got[event+orders]; !ok || found != n {
				t.Errorf("%s: %d, exported: %t; want %d", event, found, ok, n)
			}
		}
	}
	want(0, 0)
	hooks.WentBack(t.Context(), driver.SourceEvent{System: "kafka", Source: "orders", Messages: 70})
	want(1, 70)
	hooks.WentBack(t.Context(), driver.SourceEvent{System: "kafka", Source: "orders", Messages: -5}) // all were deleted
	want(2, 70)
}

// Without a name of the broker the series are those of Config.System, because the events have it.
func TestSourceEventsOfTheDefaultSystem(t *testing.T) {
	r := newRig(t, telemetry.Config{System: "kafka"})
	r.Subscriber("", "billing", "orders")
	if n, ok := values(t, r.collect(t)["txonce.source.events"])["event=gap,messaging.system=kafka,source=orders"]; !ok || n != 0 {
		t.Errorf("before the first gap: %d, exported: %t", n, ok)
	}
}

func TestConsumerMetrics(t *testing.T) {
	r := newRig(t, telemetry.Config{System: "kafka"})
	boom := errors.New("boom")
	c := newConsumer(t, consumer.Config[tx]{
		Trace: r.Consumer(telemetry.ConsumerConfig{Name: "billing"}),
		Handle: func(_ context.Context, tx tx, m *consumer.Message) error {
			if m.ID == "bad" {
				return consumer.Permanent(boom)
			}
			return tx.Add(m.ID)
		},
	})
	for _, errs := range [][]error{
		c.ProcessBatch(t.Context(), []*consumer.Message{message("1"), message("2"), message("bad")}),
		c.ProcessBatch(t.Context(), []*consumer.Message{message("1")}),
	} {
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	metrics := r.collect(t)
	want := map[string]int64{
		"cause=,consumer=billing,outcome=processed,topic=orders":       2,
		"cause=,consumer=billing,outcome=duplicate,topic=orders":       1,
		"cause=permanent,consumer=billing,outcome=parked,topic=orders": 1,
	}
	if diff := cmp.Diff(want, values(t, metrics["txonce.deliveries"])); diff != "" {
		t.Errorf("txonce.deliveries (-want +got):\n%s", diff)
	}
	if n := values(t, metrics["txonce.in_flight"])["consumer=billing"]; n != 0 {
		t.Errorf("%d messages in flight after all of them", n)
	}
	passes := map[string]uint64{}
	for _, p := range metrics["messaging.process.duration"].Data.(metricdata.Histogram[float64]).DataPoints {
		cause, _ := p.Attributes.Value("error.type")
		passes[cause.AsString()] = p.Count
	}
	if diff := cmp.Diff(map[string]uint64{"": 1, "permanent": 1}, passes); diff != "" {
		t.Errorf("messaging.process.duration (-want +got):\n%s", diff)
	}
}

// A batch is many messages, and one connection.
func TestInFlightDuringTheHandler(t *testing.T) {
	r := newRig(t, telemetry.Config{})
	var messages, workers int64
	look := func() {
		metrics := r.collect(t)
		messages, workers = values(t, metrics["txonce.in_flight"])["consumer=billing"],
			values(t, metrics["txonce.workers"])["consumer=billing"]
	}
	c := newConsumer(t, consumer.Config[tx]{
		Trace: r.Consumer(telemetry.ConsumerConfig{Name: "billing"}),
		Handle: func(context.Context, tx, *consumer.Message) error {
			look()
			return nil
		},
	})
	errs := c.ProcessBatch(t.Context(), []*consumer.Message{message("1"), message("2"), message("3")})
	if err := errors.Join(errs...); err != nil || messages != 3 || workers != 1 {
		t.Errorf("%d messages in flight with %d workers in a handler, want 3 with 1 (%v)", messages, workers, err)
	}
	if look(); messages != 0 || workers != 0 {
		t.Errorf("%d messages in flight with %d workers after all of them", messages, workers)
	}
}

// A relay without Config.Name is called like its process. Each process would have a series, and the one that is
// exported from the start would stay 0.
func TestPausesHaveTheConfiguredName(t *testing.T) {
	r := newRig(t, telemetry.Config{})
	hooks := r.Relay("billing")
	p := observe.Pause{Name: "host-7/4711", Topic: "charges", Cause: observe.CauseBroker}
	hooks.Paused(t.Context(), p)
	want := map[string]int64{"cause=broker,relay=billing": 1, "cause=database,relay=billing": 0}
	if diff := cmp.Diff(want, values(t, r.collect(t)["txonce.paused"])); diff != "" {
		t.Errorf("during a pause (-want +got):\n%s", diff)
	}
	hooks.Resumed(t.Context(), p)
	want["cause=broker,relay=billing"] = 0
	if diff := cmp.Diff(want, values(t, r.collect(t)["txonce.paused"])); diff != "" {
		t.Errorf("after a pause (-want +got):\n%s", diff)
	}
}

func TestStuckKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, telemetry.Config{})
		hooks := r.Consumer(telemetry.ConsumerConfig{Name: "billing"})
		stuck := func() int64 { return values(t, r.collect(t)["txonce.keys.stuck"])["consumer=billing"] }
		held := consumer.MessageOutcome{
			Outcome: observe.Held, Cause: observe.CauseInFlight,
			Key: dedup.Key{Consumer: "billing", ID: "1"},
		}
		for range 4 {
			provoke.Pass(t.Context(), hooks, held)
		}
		if n := stuck(); n != 0 {
			t.Errorf("%d keys are stuck after four deliveries", n)
		}
		provoke.Pass(t.Context(), hooks, held)
		if n := stuck(); n != 1 {
			t.Errorf("%d keys are stuck after five deliveries, want 1", n)
		}
		other := held
		other.Key.ID = "2"
		for range 5 {
			provoke.Pass(t.Context(), hooks, other)
		}
		done := consumer.MessageOutcome{Outcome: observe.Processed, Key: other.Key}
		provoke.Pass(t.Context(), hooks, done)
		if n := stuck(); n != 1 {
			t.Errorf("%d keys are stuck after one of two was processed, want 1", n)
		}
		<-time.After(11 * time.Minute) // of the bubble's clock
		if n := stuck(); n != 0 {
			t.Errorf("%d keys are stuck eleven minutes later", n)
		}
	})
}

// A key that is held for longer than ten minutes is stuck all the time: otherwise the alert ends while the cause goes
// on.
func TestStuckKeysStayStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, telemetry.Config{})
		hooks := r.Consumer(telemetry.ConsumerConfig{Name: "billing"})
		for minute := range 60 {
			provoke.Pass(t.Context(), hooks, consumer.MessageOutcome{
				Outcome: observe.Held, Cause: observe.CauseInFlight, Key: dedup.Key{Consumer: "billing", ID: "1"},
			})
			if n := values(t, r.collect(t)["txonce.keys.stuck"])["consumer=billing"]; minute >= 4 && n != 1 {
				t.Errorf("minute %d: %d keys are stuck, want 1", minute, n)
			}
			<-time.After(time.Minute) // of the bubble's clock
		}
	})
}

// Topics come from messages: their number must not be the number of series.
func TestTopicsAreLimited(t *testing.T) {
	r := newRig(t, telemetry.Config{})
	hooks := r.Consumer(telemetry.ConsumerConfig{Name: "billing"})
	const topics = 100_000
	for i := range topics {
		d := &consumer.Delivery{Messages: []*consumer.Message{{Topic: fmt.Sprintf("t%d", i)}}, Began: time.Now()}
		hooks.Attempt(t.Context(), d, consumer.Attempt{Result: observe.Committed})
		hooks.Done(t.Context(), d, []consumer.MessageOutcome{{Outcome: observe.Processed}})
	}
	counts := values(t, r.collect(t)["txonce.deliveries"])
	var sum int64
	for _, n := range counts {
		sum += n
	}
	other := counts["cause=,consumer=billing,outcome=processed,topic=_OTHER"]
	if len(counts) != 201 || sum != topics || other != topics-200 {
		t.Errorf("%d series with %d messages, %d of them in _OTHER; want 201, %d, %d", len(counts), sum, other, topics,
			topics-200)
	}
}

func TestNilAndRefused(t *testing.T) {
	var none *telemetry.Telemetry
	none.Audited("billing", telemetry.Audit{})
	if none.Consumer(telemetry.ConsumerConfig{}) != nil || none.Relay("") != nil || none.Subscriber("", "") != nil ||
		none.Sweeper() != nil || none.Close() != nil {
		t.Error("a nil Telemetry has hooks")
	}
	for _, test := range []struct {
		cfg  telemetry.Config
		want string
	}{
		{telemetry.Config{}, "Config.MeterProvider or Config.TracerProvider is required"},
		{
			telemetry.Config{MeterProvider: noop.NewMeterProvider(), AckSpans: true},
			"no effect without Config.TracerProvider",
		},
		{
			telemetry.Config{MeterProvider: noop.NewMeterProvider(), Pools: map[string]func() (int, int){"main": nil}},
			`Pools["main"] is nil`,
		},
	} {
		if _, err := telemetry.New(test.cfg); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("New: %v, want %q", err, test.want)
		}
	}
}

// failing is a database that does not answer.
type failing struct{ asked int }

func (f *failing) Status(context.Context) (ops.Status, error) {
	f.asked++
	return ops.Status{}, io.ErrUnexpectedEOF
}

// An old value looks healthy, so the gauges of a database that does not answer are absent, and an alert notices that.
func TestGaugesOfAFailingDatabaseAreAbsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		database := &failing{}
		r := newRig(t, telemetry.Config{Status: database, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for range 12 {
			metrics := r.collect(t)
			for _, name := range []string{"txonce.sweep.lag", "txonce.outbox.pending", "txonce.outbox.oldest.age"} {
				if _, ok := metrics[name]; ok {
					t.Fatalf("%s is exported", name)
				}
			}
			<-time.After(5 * time.Second) // of the bubble's clock
		}
		if lines := strings.Count(log.String(), "\n"); database.asked != 6 || lines != 1 {
			t.Errorf("asked %d times in a minute, want 6; %d log lines, want 1", database.asked, lines)
		}
	})
}

func TestGaugesOfTheDatabase(t *testing.T) {
	r := newRig(t, telemetry.Config{Status: provoke.Status{}})
	r.Consumer(telemetry.ConsumerConfig{Name: "billing", Redelivery: 14 * 24 * time.Hour})
	metrics := r.collect(t)
	for name, want := range map[string]map[string]int64{
		"txonce.outbox.pending": {"topic=charges": 7},
		"txonce.outbox.parked":  {"topic=charges": 2},
		"txonce.dead_letters":   {"cause=exhausted,consumer=billing": 3},
	} {
		if diff := cmp.Diff(want, values(t, metrics[name])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for name, want := range map[string]float64{"txonce.sweep.lag": 60, "txonce.window.margin": 86400} {
		points := metrics[name].Data.(metricdata.Gauge[float64]).DataPoints
		if len(points) != 1 || points[0].Value != want {
			t.Errorf("%s: %v, want %v", name, points, want)
		}
	}
}

// Each number of an audit has a gauge of its own, and the next audit replaces it.
func TestAudited(t *testing.T) {
	r := newRig(t, telemetry.Config{})
	for _, audit := range []telemetry.Audit{
		{Checked: 1, Lost: 2, Doubled: 3, Orphaned: 4, Repeated: 5},
		{Checked: 1000},
	} {
		r.Audited("billing", audit)
		found := r.collect(t)
		for name, want := range map[string]int64{
			"txonce.audit.checked": audit.Checked, "txonce.audit.lost": audit.Lost,
			"txonce.audit.doubled":  audit.Doubled,
			"txonce.audit.orphaned": audit.Orphaned, "txonce.audit.repeated": audit.Repeated,
		} {
			if got := values(t, found[name]); len(got) != 1 || got["consumer=billing"] != want {
				t.Errorf("%s: %v, want %d for billing", name, got, want)
			}
		}
	}
}
