package awssqs

import (
	"encoding/json"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// LambdaEvent is what AWS Lambda invokes a function with whose event source is a queue. Its JSON is that of events.SQSEvent in
// aws-lambda-go.
type LambdaEvent struct {
	Records []LambdaRecord `json:"Records"`
}

// LambdaRecord is one message of a LambdaEvent. One that cannot be read does not make the others unreadable: it remembers why.
type LambdaRecord struct {
	MessageID         string                     `json:"messageId"`
	ReceiptHandle     string                     `json:"receiptHandle"`
	Body              string                     `json:"body"`
	Attributes        map[string]string          `json:"attributes"`
	MessageAttributes map[string]LambdaAttribute `json:"messageAttributes"`
	EventSource       string                     `json:"eventSource"`
	EventSourceARN    string                     `json:"eventSourceARN"`

	malformed error
}

// LambdaAttribute is one message attribute of a LambdaRecord.
type LambdaAttribute struct {
	DataType    string  `json:"dataType"`
	StringValue *string `json:"stringValue,omitempty"`
	BinaryValue []byte  `json:"binaryValue,omitempty"`
}

// LambdaResponse is what the function returns: which messages stay in the queue. Its JSON is that of events.SQSEventResponse.
type LambdaResponse struct {
	BatchItemFailures []LambdaFailure `json:"batchItemFailures"`
}

// LambdaFailure names one message.
type LambdaFailure struct {
	ItemIdentifier string `json:"itemIdentifier"`
}

// UnmarshalJSON reads a record. It never fails: what is wrong with a record concerns that record.
func (r *LambdaRecord) UnmarshalJSON(raw []byte) error {
	type plain LambdaRecord
	var all plain
	if err := json.Unmarshal(raw, &all); err != nil {
		var least struct {
			MessageID      any `json:"messageId"`
			EventSource    any `json:"eventSource"`
			EventSourceARN any `json:"eventSourceARN"`
		}
		_ = json.Unmarshal(raw, &least) // what is missing then is empty
		*r = LambdaRecord{malformed: fmt.Errorf("read its JSON: %w", err)}
		r.MessageID, _ = least.MessageID.(string)
		r.EventSource, _ = least.EventSource.(string)
		r.EventSourceARN, _ = least.EventSourceARN.(string)
		return nil
	}
	*r = LambdaRecord(all)
	return nil
}

// message is the record as ReceiveMessage would have returned it.
func (r *LambdaRecord) message() types.Message {
	m := types.Message{MessageId: &r.MessageID, ReceiptHandle: &r.ReceiptHandle, Body: &r.Body, Attributes: r.Attributes}
	if len(r.MessageAttributes) > 0 {
		m.MessageAttributes = make(map[string]types.MessageAttributeValue, len(r.MessageAttributes))
	}
	for name, a := range r.MessageAttributes {
		m.MessageAttributes[name] = types.MessageAttributeValue{DataType: &a.DataType, StringValue: a.StringValue, BinaryValue: a.BinaryValue}
	}
	return m
}
