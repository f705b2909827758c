// Package testsqs connects a test to ElasticMQ, a real server for Amazon SQS's protocol, and makes queues for it.
package testsqs

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/txonce/txonce/internal/test/testdb"
)

// Server returns a client of a real server for Amazon SQS's protocol.
func Server(t testing.TB) *sqs.Client {
	t.Helper()
	endpoint := testdb.Server(t, "TXONCE_SQS", "ElasticMQ")
	at, err := url.Parse(endpoint)
	if err != nil {
		t.Fatalf("TXONCE_SQS: %v", err)
	}
	testdb.Answers(t, "ElasticMQ", "tcp", at.Host)
	return Client(endpoint)
}

// Client returns a client of the server at this endpoint, http://host:port, with the SDK's default retries.
func Client(endpoint string) *sqs.Client {
	return sqs.New(sqs.Options{
		BaseEndpoint: aws.String(endpoint),
		Region:       "elasticmq",
		Credentials:  credentials.NewStaticCredentialsProvider("any", "any", ""),
	})
}

// Queue creates a standard queue with these attributes and returns its URL. It is deleted when the test ends.
func Queue(t testing.TB, client *sqs.Client, attributes map[string]string) (queueURL string) {
	t.Helper()
	return newQueue(t, client, "", attributes)
}

// FIFOQueue creates a FIFO queue with these attributes and returns its URL. It is deleted when the test ends.
func FIFOQueue(t testing.TB, client *sqs.Client, attributes map[string]string) (queueURL string) {
	t.Helper()
	fifo := map[string]string{"FifoQueue": "true"}
	maps.Copy(fifo, attributes)
	return newQueue(t, client, ".fifo", fifo)
}

func newQueue(t testing.TB, client *sqs.Client, suffix string, attributes map[string]string) string {
	t.Helper()
	ctx, cancel := testdb.CleanUpContext(t)
	defer cancel()
	name := testdb.RandomName(t) + suffix
	out, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		t.Fatalf("create queue %s: %v", name, err)
	}
	t.Cleanup(func() {
		ctx, cancel := testdb.CleanUpContext(t)
		defer cancel()
		if _, err := client.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: out.QueueUrl}); err != nil &&
			!isGone(err) {
			t.Errorf("delete queue %s: %v", name, err)
		}
	})
	return *out.QueueUrl
}

func isGone(err error) bool { return strings.Contains(err.Error(), "QueueDoesNotExist") }

// Redrive returns the attribute that moves messages to the queue dead after they were received maxReceives times:
//
//	testsqs.Queue(t, client, testsqs.Redrive(t, client, dead, 3))
func Redrive(t testing.TB, client *sqs.Client, dead string, maxReceives int) map[string]string {
	t.Helper()
	out, err := client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: &dead, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn},
	})
	if err != nil {
		t.Fatalf("look at queue %s: %v", dead, err)
	}
	policy, err := json.Marshal(map[string]string{
		"deadLetterTargetArn": out.Attributes["QueueArn"], "maxReceiveCount": fmt.Sprint(maxReceives),
	})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{"RedrivePolicy": string(policy)}
}
