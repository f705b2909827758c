package telemetry

import "go.opentelemetry.io/otel/attribute"

// The names of this file are the contract with rules, dashboards and queries. A golden test lists them. OpenTelemetry's
// conventions for messaging have the status Development, so schemaURL says which version they are from.
const (
	scopeName = "github.com/txonce/txonce/adapters/telemetry"
	schemaURL = "https://opentelemetry.io/schemas/1.43.0"
)

// instrument describes one instrument.
type instrument struct {
	name, unit, description string
	buckets                 []float64 // of a histogram
}

// Bounds in seconds. The conventions prescribe those of messaging durations.
var (
	messagingBuckets = []float64{.005, .01, .025, .05, .075, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10}
	databaseBuckets  = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	ageBuckets       = []float64{.1, 1, 10, 60, 300, 1800, 3600, 21600, 86400, 259200, 604800, 2592000}
	delayBuckets     = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800}
)

var (
	deliveries = instrument{
		name: "txonce.deliveries", unit: "{delivery}",
		description: "Messages that a consumer handled, by what it did with them.",
	}
	attempts = instrument{
		name: "txonce.attempts", unit: "{attempt}",
		description: "Transactions that claimed messages for their handlers, by how they ended.",
	}
	processDuration = instrument{
		name: "messaging.process.duration", unit: "s", buckets: messagingBuckets,
		description: "Duration of one pass of a consumer over a message or a batch.",
	}
	transactionDuration = instrument{
		name: "txonce.transaction.duration", unit: "s", buckets: databaseBuckets,
		description: "Duration of a claiming transaction, with its handlers, until COMMIT or ROLLBACK was answered.",
	}
	claimDuration = instrument{
		name: "txonce.claim.duration", unit: "s", buckets: databaseBuckets,
		description: "Time from BEGIN until the database answered the claims, or refused them because another transaction holds a key.",
	}
	paused = instrument{
		name: "txonce.paused", unit: "{pause}",
		description: "1 while a consumer, relay or subscriber makes no progress because of the cause, otherwise 0.",
	}
	inFlight = instrument{
		name: "txonce.in_flight", unit: "{message}",
		description: "Messages that a consumer is working on.",
	}
	workers = instrument{
		name: "txonce.workers", unit: "{worker}",
		description: "Passes in progress. A pass works on a message or a batch, and uses one connection at a time while it has a transaction.",
	}
	keysStuck = instrument{
		name: "txonce.keys.stuck", unit: "{key}",
		description: "Keys that another transaction held at five deliveries or more in ten minutes.",
	}
	connectionCount = instrument{
		name: "db.client.connection.count", unit: "{connection}",
		description: "Connections of the pool, by state.",
	}
	connectionMax = instrument{
		name: "db.client.connection.max", unit: "{connection}",
		description: "The most connections that the pool opens.",
	}
	sentMessages = instrument{
		name: "messaging.client.sent.messages", unit: "{message}",
		description: "Messages that a relay passed to its publisher; those without error.type are confirmed.",
	}
	operationDuration = instrument{
		name: "messaging.client.operation.duration", unit: "s", buckets: messagingBuckets,
		description: "Duration of one call of the publisher.",
	}
	confirmDelay = instrument{
		name: "txonce.outbox.confirm.delay", unit: "s", buckets: delayBuckets,
		description: "Time from Enqueue, by the database's clock, until the broker had confirmed the message and the outbox had recorded that.",
	}
	relayLeases = instrument{
		name: "txonce.relay.leases", unit: "{lease}",
		description: "Leases that a relay took, renewed and lost. After a loss, a batch may be published twice.",
	}
	sourceEvents = instrument{
		name: "txonce.source.events", unit: "{event}",
		description: "What happened between a subscriber and its broker. gap: the broker deleted messages before they were read. went_back: the database had lost commits, so that messages, as many as read_again counts, were read again.",
	}
	databaseLosses = instrument{
		name: "txonce.database.losses", unit: "{loss}",
		description: "How often a process noticed that the database had lost commits of messages that it had acknowledged, of requests that it had answered, or of messages that it had published.",
	}
	sweepRows = instrument{
		name: "txonce.sweep.rows", unit: "{row}",
		description: "Rows of expired keys that sweepers deleted.",
	}
	outboxPending = instrument{
		name: "txonce.outbox.pending", unit: "{message}",
		description: "Messages of the outbox that are due and not confirmed.",
	}
	outboxParked = instrument{
		name: "txonce.outbox.parked", unit: "{message}",
		description: "Messages of the outbox that are not tried again, and those that wait behind them.",
	}
	outboxOldest = instrument{
		name: "txonce.outbox.oldest.age", unit: "s",
		description: "How long the oldest pending message of the outbox has been due.",
	}
	deadLetters = instrument{
		name: "txonce.dead_letters", unit: "{letter}",
		description: "Dead letters that wait for a person, by cause. 10,001 means more than 10,000.",
	}
	windowMargin = instrument{
		name: "txonce.window.margin", unit: "s",
		description: "How much longer keys are remembered than the source may deliver a message again. Below 0 a repeat may run twice.",
	}
	sweepLag = instrument{
		name: "txonce.sweep.lag", unit: "s",
		description: "Time since a sweeper last deleted expired keys.",
	}
	auditChecked = instrument{
		name: "txonce.audit.checked", unit: "{claim}",
		description: "Claims that the last audit compared.",
	}
	auditLost = instrument{
		name: "txonce.audit.lost", unit: "{claim}",
		description: "Messages that the last audit found neither claimed nor parked.",
	}
	auditDoubled = instrument{
		name: "txonce.audit.doubled", unit: "{claim}",
		description: "Claims that the last audit found with more than one effect.",
	}
	auditOrphaned = instrument{
		name: "txonce.audit.orphaned", unit: "{claim}",
		description: "Effects that the last audit found without a claim.",
	}
	auditRepeated = instrument{
		name: "txonce.audit.repeated", unit: "{message}",
		description: "Messages of the outbox that the last audit found more than once on their topic.",
	}
	httpRequests = instrument{
		name: "txonce.http.requests", unit: "{request}",
		description: "HTTP requests that a Guard of httpidem answered, by what it decided.",
	}
	httpDuration = instrument{
		name: "txonce.http.duration", unit: "s", buckets: databaseBuckets,
		description: "Time from the arrival of a request at its Guard until the answer was known.",
	}
	httpWait = instrument{
		name: "txonce.http.wait", unit: "s", buckets: databaseBuckets,
		description: "How long requests waited for another one with their key. Requests that did not wait are not in it.",
	}
	httpReplayAge = instrument{
		name: "txonce.http.replay.age", unit: "s", buckets: ageBuckets,
		description: "Time since the first request was completed, when a repeat got its response.",
	}
	httpCommitUnknown = instrument{
		name: "txonce.http.commit_unknown", unit: "{request}",
		description: "Requests whose COMMIT got no answer.",
	}
	webhookEvents = instrument{
		name: "txonce.webhook.events", unit: "{event}",
		description: "Events of verified webhook deliveries, by what became of them.",
	}
	webhookDeliveries = instrument{
		name: "txonce.webhook.deliveries", unit: "{delivery}",
		description: "Webhook deliveries, by the class of the answer's status.",
	}
	webhookRefused = instrument{
		name: "txonce.webhook.refused", unit: "{delivery}",
		description: "Webhook deliveries that were not accepted as the sender's, by the reason.",
	}
	webhookLate = instrument{
		name: "txonce.webhook.late", unit: "{delivery}",
		description: "Webhook deliveries that were answered before their handlers returned, because the sender's deadline was near.",
	}
	webhookDuration = instrument{
		name: "txonce.webhook.duration", unit: "s", buckets: databaseBuckets,
		description: "Time from the arrival of a webhook delivery until its answer was sent.",
	}
	webhookReplayAge = instrument{
		name: "txonce.webhook.replay.age", unit: "s", buckets: ageBuckets,
		description: "Time since an event was created, when it arrived as a duplicate, for senders that sign that time.",
	}
	auditAge = instrument{name: "txonce.audit.age", unit: "s", description: "Time since the last audit ended."}
)

// Attributes of metrics. Their values are configuration or words of package observe, never a key, a tenant or the text
// of an error.
const (
	attrConsumer = attribute.Key("consumer")
	attrTopic    = attribute.Key("topic")
	attrOutcome  = attribute.Key("outcome")
	attrCause    = attribute.Key("cause")
	attrResult   = attribute.Key("result")
	attrRetry    = attribute.Key("retry")
	attrVerdict  = attribute.Key("verdict")
	attrName     = attribute.Key("name") // of a paused consumer, relay or source
	attrEvent    = attribute.Key("event")
	attrRelay    = attribute.Key("relay")
	attrKind     = attribute.Key("kind")
	attrGuard    = attribute.Key("guard")
	attrDecision = attribute.Key("decision")
	attrReason   = attribute.Key("reason")
	attrRefusal  = attribute.Key("refusal")
	attrAnswer   = attribute.Key("answer")
)

// Attributes that OpenTelemetry's conventions name.
const (
	attrSystem        = attribute.Key("messaging.system")
	attrOperation     = attribute.Key("messaging.operation.name")
	attrOperationType = attribute.Key("messaging.operation.type")
	attrDestination   = attribute.Key("messaging.destination.name")
	attrGroup         = attribute.Key("messaging.consumer.group.name")
	attrMessageID     = attribute.Key("messaging.message.id")
	attrPartition     = attribute.Key("messaging.destination.partition.id")
	attrOffset        = attribute.Key("messaging.kafka.offset")
	attrBatchCount    = attribute.Key("messaging.batch.message_count")
	attrErrorType     = attribute.Key("error.type")
	attrStatusCode    = attribute.Key("db.response.status_code")
	attrPool          = attribute.Key("db.client.connection.pool.name")
	attrPoolState     = attribute.Key("db.client.connection.state")
)

// Attributes of spans.
const (
	attrSpanConsumer = attribute.Key("txonce.consumer")
	attrSpanRelay    = attribute.Key("txonce.relay")
	attrKey          = attribute.Key("txonce.key")
	attrSpanOutcome  = attribute.Key("txonce.outcome")
	attrSpanCause    = attribute.Key("txonce.cause")
	attrSpanResult   = attribute.Key("txonce.result")
	attrDelivery     = attribute.Key("txonce.delivery") // 1 on the first delivery of the message
	attrAttempts     = attribute.Key("txonce.attempts")
	attrClaimWait    = attribute.Key("txonce.claim.wait") // seconds
	attrLetter       = attribute.Key("txonce.letter")
	attrPosition     = attribute.Key("txonce.position")
	attrSpanGuard    = attribute.Key("txonce.guard")
	attrSpanSource   = attribute.Key("txonce.source")
	attrSpanDecision = attribute.Key("txonce.decision")
	attrSpanReason   = attribute.Key("txonce.reason")
	attrWaited       = attribute.Key("txonce.waited") // seconds
	attrAge          = attribute.Key("txonce.age")    // seconds, of a replayed key
	attrInDoubt      = attribute.Key("txonce.commit_unknown")
	attrHTTPStatus   = attribute.Key("http.response.status_code")
)

// otherTopic stands for all topics beyond maxTopics.
const otherTopic = "_OTHER"
