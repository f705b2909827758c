package telemetry

import (
	"errors"

	"go.opentelemetry.io/otel/metric"
)

// meters has the instruments.
type meters struct {
	registration metric.Registration
	meter        metric.Meter
	observables  []metric.Observable

	processDuration, transactionDuration, claimDuration, operationDuration, confirmDelay metric.Float64Histogram

	httpDuration, httpWait, httpReplayAge, webhookDuration, webhookReplayAge metric.Float64Histogram

	deliveries, attempts, sentMessages, relayLeases, sourceEvents, sweepRows, databaseLosses metric.Int64ObservableCounter

	httpRequests, httpCommitUnknown, webhookEvents, webhookDeliveries, webhookRefused, webhookLate metric.Int64ObservableCounter

	paused, inFlight, workers, keysStuck, outboxPending, outboxParked, deadLetters metric.Int64ObservableGauge
	connectionCount, connectionMax, auditChecked, auditLost, auditDoubled          metric.Int64ObservableGauge
	auditOrphaned, auditRepeated                                                   metric.Int64ObservableGauge

	outboxOldest, windowMargin, sweepLag, auditAge metric.Float64ObservableGauge
}

func newMeters(provider metric.MeterProvider) (*meters, error) {
	meter := provider.Meter(scopeName, metric.WithSchemaURL(schemaURL))
	m := &meters{meter: meter}
	var errs []error
	fail := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	for into, in := range map[*metric.Float64Histogram]instrument{
		&m.processDuration: processDuration, &m.transactionDuration: transactionDuration,
		&m.claimDuration:     claimDuration,
		&m.operationDuration: operationDuration, &m.confirmDelay: confirmDelay,
		&m.httpDuration: httpDuration, &m.httpWait: httpWait, &m.httpReplayAge: httpReplayAge,
		&m.webhookDuration: webhookDuration, &m.webhookReplayAge: webhookReplayAge,
	} {
		var err error
		*into, err = meter.Float64Histogram(in.name, metric.WithUnit(in.unit), metric.WithDescription(in.description),
			metric.WithExplicitBucketBoundaries(in.buckets...))
		fail(err)
	}
	for into, in := range map[*metric.Int64ObservableCounter]instrument{
		&m.deliveries: deliveries, &m.attempts: attempts, &m.sentMessages: sentMessages, &m.relayLeases: relayLeases,
		&m.sourceEvents: sourceEvents, &m.sweepRows: sweepRows, &m.databaseLosses: databaseLosses,
		&m.httpRequests: httpRequests, &m.httpCommitUnknown: httpCommitUnknown, &m.webhookEvents: webhookEvents,
		&m.webhookDeliveries: webhookDeliveries, &m.webhookRefused: webhookRefused, &m.webhookLate: webhookLate,
	} {
		var err error
		*into, err = meter.Int64ObservableCounter(in.name, metric.WithUnit(in.unit),
			metric.WithDescription(in.description))
		fail(err)
		m.observables = append(m.observables, *into)
	}
	for into, in := range map[*metric.Int64ObservableGauge]instrument{
		&m.paused: paused, &m.inFlight: inFlight, &m.workers: workers, &m.keysStuck: keysStuck,
		&m.outboxPending: outboxPending, &m.outboxParked: outboxParked,
		&m.deadLetters: deadLetters, &m.connectionCount: connectionCount, &m.connectionMax: connectionMax,
		&m.auditChecked: auditChecked,
		&m.auditLost:    auditLost, &m.auditDoubled: auditDoubled, &m.auditOrphaned: auditOrphaned,
		&m.auditRepeated: auditRepeated,
	} {
		var err error
		*into, err = meter.Int64ObservableGauge(in.name, metric.WithUnit(in.unit),
			metric.WithDescription(in.description))
		fail(err)
		m.observables = append(m.observables, *into)
	}
	for into, in := range map[*metric.Float64ObservableGauge]instrument{
		&m.outboxOldest: outboxOldest, &m.windowMargin: windowMargin, &m.sweepLag: sweepLag, &m.auditAge: auditAge,
	} {
		var err error
		*into, err = meter.Float64ObservableGauge(in.name, metric.WithUnit(in.unit),
			metric.WithDescription(in.description))
		fail(err)
		m.observables = append(m.observables, *into)
	}
	return m, errors.Join(errs...)
}

// register makes the SDK call observe when metrics are collected.
func (m *meters) register(observe metric.Callback) (err error) {
	m.registration, err = m.meter.RegisterCallback(observe, m.observables...)
	return err
}
