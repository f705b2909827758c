package testsqs_test

import (
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/txonce/txonce/internal/test/brokers/testsqs"
)

// Confirmed messages survive Stop and Start.
func TestOwnElasticMQ(t *testing.T) {
	own := testsqs.Start(t)
	client := testsqs.Client(own.Endpoint)
	queue := testsqs.Queue(t, client, nil)
	want := map[string]bool{}
	for i := range 30 {
		body := fmt.Sprint(i)
		if _, err := client.SendMessage(t.Context(),
			&sqs.SendMessageInput{QueueUrl: &queue, MessageBody: &body}); err != nil {
			t.Fatal(err)
		}
		want[body] = true
	}
	if err := own.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := own.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for {
		out, err := client.ReceiveMessage(t.Context(),
			&sqs.ReceiveMessageInput{
				QueueUrl: &queue, MaxNumberOfMessages: 10, WaitTimeSeconds: 1,
				VisibilityTimeout: 60,
			})
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Messages) == 0 {
			break
		}
		for _, m := range out.Messages {
			delete(want, aws.ToString(m.Body))
		}
	}
	if len(want) > 0 {
		t.Errorf("a restart has lost %d of 30 messages: %v", len(want), want)
	}
}
