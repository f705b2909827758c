package awssqstest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/txonce/txonce/adapters/awssqs/awssqstest"
)

func TestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := awssqstest.NewServer(awssqstest.Config{})
		q, err := s.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("a.fifo"), Attributes: map[string]string{"FifoQueue": "true"}})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			<-time.After(3 * time.Second)
			_, err := s.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: q.QueueUrl, Entries: []types.SendMessageBatchRequestEntry{
				{Id: aws.String("1"), MessageBody: aws.String("x"), MessageGroupId: aws.String("g"), MessageDeduplicationId: aws.String("d")},
			}})
			if err != nil {
				t.Error(err)
			}
		}()
		began := time.Now()
		r, err := s.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: q.QueueUrl, WaitTimeSeconds: 20, MaxNumberOfMessages: 10})
		if err != nil || len(r.Messages) != 1 || time.Since(began) != 3*time.Second {
			t.Fatal(err, r, time.Since(began))
		}
		r, err = s.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: q.QueueUrl, WaitTimeSeconds: 20})
		if err != nil || len(r.Messages) != 0 {
			t.Fatal(err, r)
		}
		r, err = s.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: q.QueueUrl, WaitTimeSeconds: 20, MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"}})
		if err != nil || len(r.Messages) != 1 || time.Since(began) != 33*time.Second {
			t.Fatal(err, r, time.Since(began))
		}
		t.Log(r.Messages[0].Attributes)
	})
}
