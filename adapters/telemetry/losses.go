package telemetry

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/metric"

	"github.com/txonce/txonce/observe"
)

// losses has the counter of losses, by consumer. The zero value is ready for use. It is safe for concurrent use.
type losses struct {
	mu sync.Mutex
	n  map[string]int64
}

// of returns the hook WentBack, and exports a loss that has not happened yet as 0.
func (l *losses) of(consumer string) func(context.Context, observe.Loss) {
	l.add(consumer, 0)
	return func(context.Context, observe.Loss) { l.add(consumer, 1) }
}

func (l *losses) add(consumer string, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n == nil {
		l.n = map[string]int64{}
	}
	l.n[consumer] += n
}

func (l *losses) observe(o metric.Observer, counter metric.Int64Observable) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for consumer, n := range l.n {
		o.ObserveInt64(counter, n, metric.WithAttributes(attrConsumer.String(consumer)))
	}
}
