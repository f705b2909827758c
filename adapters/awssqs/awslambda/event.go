package awslambda

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// Event is what AWS Lambda passes to a function whose event source is a queue. Its JSON is that of events.SQSEvent in
// aws-lambda-go.
type Event struct {
	Records []Record `json:"Records"`
}

// Record is one message of an Event.
type Record struct {
	MessageID         string               `json:"messageId"`
	ReceiptHandle     string               `json:"receiptHandle"`
	Body              string               `json:"body"`
	Attributes        map[string]string    `json:"attributes"`
	MessageAttributes map[string]Attribute `json:"messageAttributes"`
	EventSource       string               `json:"eventSource"`
	EventSourceARN    string               `json:"eventSourceARN"`

	malformed error // why its JSON cannot be read; nil: it can
}

// Attribute is one message attribute of a Record.
type Attribute struct {
	DataType    string  `json:"dataType"`
	StringValue *string `json:"stringValue,omitempty"`
	BinaryValue []byte  `json:"binaryValue,omitempty"`
}

// Response is what the function returns: the messages that stay in the queue. Its JSON is that of
// events.SQSEventResponse.
type Response struct {
	BatchItemFailures []Failure `json:"batchItemFailures"`
}

// Failure names one message.
type Failure struct {
	ItemIdentifier string `json:"itemIdentifier"`
}

// UnmarshalJSON reads a record. It never fails: one record that cannot be read must not make the others unreadable.
func (r *Record) UnmarshalJSON(raw []byte) error {
	type plain Record
	var all plain
	if err := json.Unmarshal(raw, &all); err != nil {
		var least struct {
			MessageID      any `json:"messageId"`
			EventSource    any `json:"eventSource"`
			EventSourceARN any `json:"eventSourceARN"`
		}
		_ = json.Unmarshal(raw, &least) // fields that cannot be read stay empty
		*r = Record{malformed: fmt.Errorf("read its JSON: %w", err)}
		r.MessageID, _ = least.MessageID.(string)
		r.EventSource, _ = least.EventSource.(string)
		r.EventSourceARN, _ = least.EventSourceARN.(string)
		return nil
	}
	*r = Record(all)
	return nil
}

// queue is the name of the queue.
func (r *Record) queue() string {
	return r.EventSourceARN[strings.LastIndexByte(r.EventSourceARN, ':')+1:]
}

// message is the record as ReceiveMessage would have returned it.
func (r *Record) message() types.Message {
	m := types.Message{
		MessageId: &r.MessageID, ReceiptHandle: &r.ReceiptHandle, Body: &r.Body,
		Attributes: r.Attributes,
	}
	if len(r.MessageAttributes) > 0 {
		m.MessageAttributes = make(map[string]types.MessageAttributeValue, len(r.MessageAttributes))
	}
	for name, a := range r.MessageAttributes {
		m.MessageAttributes[name] = types.MessageAttributeValue{
			DataType: &a.DataType, StringValue: a.StringValue,
			BinaryValue: a.BinaryValue,
		}
	}
	return m
}
