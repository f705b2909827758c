package awssqs_test

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/txonce/txonce/adapters/awssqs"
	"github.com/txonce/txonce/adapters/awssqs/awssqstest"
)

func TestCheckWindow(t *testing.T) {
	server := awssqstest.NewServer(awssqstest.Config{})
	if _, err := server.CreateQueue(t.Context(), &sqs.CreateQueueInput{
		QueueName:  aws.String("orders"),
		Attributes: map[string]string{"MessageRetentionPeriod": "1209600"},
	}); err != nil {
		t.Fatal(err)
	}
	if err := awssqs.CheckWindow(t.Context(), server, "orders", 14*24*time.Hour); err != nil {
		t.Error(err)
	}
	if err := awssqs.CheckWindow(t.Context(), server, "orders", 13*24*time.Hour); err == nil ||
		!strings.Contains(err.Error(), "keeps messages for 336h0m0s") {
		t.Errorf("a window that is too short: %v", err)
	}
	if err := awssqs.CheckWindow(t.Context(), server, "nothing", time.Hour); err == nil {
		t.Error("a queue that does not exist is accepted")
	}
}
