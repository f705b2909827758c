package columns

import (
	"fmt"
	"math"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/internal/claims"
	"github.com/txonce/txonce/observe"
)

// Letter is a row of dead_letters. Nil pointers and zero times are NULL.
type Letter struct {
	ID                [16]byte
	Key               dedup.KeyHash // valid if HasKey
	HasKey            bool
	Consumer          string
	Tenant, MessageID *string
	Fingerprint       *int64
	Window            int64 // in seconds
	Time              time.Time
	Cause, Error      string
	Topic             string
	OrderingKey       []byte
	Position          string
	Payload           []byte
	Headers           string
	Attempts          int

	// The database sets these columns. Inserts ignore them.
	Times         int
	First, Latest time.Time
	Settled       bool
}

// NewLetter converts letter to a row.
func NewLetter(letter consumer.DeadLetter) (*Letter, error) {
	rec, msg := letter.Record, letter.Message
	headers, err := driver.EncodeHeaders(msg.Headers)
	if err != nil {
		return nil, fmt.Errorf("park: headers: %w", err)
	}
	l := &Letter{
		ID: letter.ID, HasKey: rec.Key.ID != "", Consumer: Text(rec.Key.Consumer),
		Tenant: pointer(Text(rec.Key.Tenant)), MessageID: pointer(Text(rec.Key.ID)),
		// rounded up, so that a replay does not expire earlier than the message
		Window: int64(rec.Keep() / time.Second), Time: claims.Ceil(rec.Time),
		Cause: Text(string(letter.Cause)), Error: Text(letter.Error), Topic: Text(msg.Topic),
		OrderingKey: []byte(msg.OrderingKey),
		Position:    Text(msg.Position), Payload: msg.Payload, Headers: string(headers),
		Attempts: min(msg.Attempt, math.MaxInt32), // a source may count with 64 bits
	}
	if l.HasKey {
		l.Key = rec.Key.Hash()
	}
	if !rec.Fingerprint.IsZero() {
		l.Fingerprint = pointer(rec.Fingerprint.Int64())
	}
	if l.Payload == nil {
		l.Payload = []byte{}
	}
	return l, nil
}

// DeadLetter converts the row to a consumer.DeadLetter.
func (l *Letter) DeadLetter() (d consumer.DeadLetter, err error) {
	d = consumer.DeadLetter{
		ID: l.ID, Cause: observe.Cause(l.Cause), Error: l.Error, Times: l.Times, First: l.First, Latest: l.Latest,
		Settled: l.Settled,
		Record: dedup.Record{
			Key: dedup.Key{Consumer: l.Consumer}, Time: l.Time,
			Window: time.Duration(l.Window) * time.Second,
		},
		Message: consumer.Message{
			Topic: l.Topic, OrderingKey: string(l.OrderingKey), Position: l.Position,
			Payload: l.Payload, Attempt: l.Attempts, Time: l.Time,
		},
	}
	if l.Tenant != nil {
		d.Record.Key.Tenant, d.Message.Tenant = *l.Tenant, *l.Tenant
	}
	if l.MessageID != nil {
		d.Record.Key.ID, d.Message.ID = *l.MessageID, *l.MessageID
	}
	if l.Fingerprint != nil {
		d.Record.Fingerprint = driver.FingerprintFromInt64(*l.Fingerprint)
	}
	d.Message.Headers, err = driver.DecodeHeaders([]byte(l.Headers))
	return d, err
}

// pointer returns nil for the zero value.
func pointer[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}
