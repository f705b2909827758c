package testdb

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
)

// SQS returns a client of a real server for Amazon SQS's protocol.
func SQS(t testing.TB) *sqs.Client {
	t.Helper()
	endpoint := server(t, "TXONCE_SQS", "ElasticMQ")
	at, err := url.Parse(endpoint)
	if err != nil {
		t.Fatalf("TXONCE_SQS: %v", err)
	}
	answers(t, "ElasticMQ", "tcp", at.Host)
	return SQSClient(endpoint)
}

// SQSClient returns a client of the server at this endpoint, http://host:port, with the SDK's default retries.
func SQSClient(endpoint string) *sqs.Client {
	return sqs.New(sqs.Options{
		BaseEndpoint: aws.String(endpoint),
		Region:       "elasticmq",
		Credentials:  credentials.NewStaticCredentialsProvider("any", "any", ""),
	})
}

// SQSQueue creates a standard queue with these attributes and returns its URL. It is deleted when the test ends.
func SQSQueue(t testing.TB, client *sqs.Client, attributes map[string]string) (queueURL string) {
	t.Helper()
	return sqsQueue(t, client, "", attributes)
}

// SQSFIFOQueue creates a FIFO queue with these attributes and returns its URL. It is deleted when the test ends.
func SQSFIFOQueue(t testing.TB, client *sqs.Client, attributes map[string]string) (queueURL string) {
	t.Helper()
	fifo := map[string]string{"FifoQueue": "true"}
	maps.Copy(fifo, attributes)
	return sqsQueue(t, client, ".fifo", fifo)
}

func sqsQueue(t testing.TB, client *sqs.Client, suffix string, attributes map[string]string) string {
	t.Helper()
	ctx, cancel := cleanUpContext(t)
	defer cancel()
	name := randomName(t) + suffix
	out, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if err != nil {
		t.Fatalf("create queue %s: %v", name, err)
	}
	t.Cleanup(func() {
		ctx, cancel := cleanUpContext(t)
		defer cancel()
		if _, err := client.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: out.QueueUrl}); err != nil && !isGone(err) {
			t.Errorf("delete queue %s: %v", name, err)
		}
	})
	return *out.QueueUrl
}

func isGone(err error) bool { return strings.Contains(err.Error(), "QueueDoesNotExist") }

// SQSRedrive returns the attribute that moves messages to the queue dead after they were received maxReceives times:
//
//	testdb.SQSQueue(t, client, testdb.SQSRedrive(t, client, dead, 3))
func SQSRedrive(t testing.TB, client *sqs.Client, dead string, maxReceives int) map[string]string {
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
