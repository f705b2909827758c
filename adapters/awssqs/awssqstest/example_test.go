package awssqstest_test

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/txonce/txonce/adapters/awssqs/awssqstest"
)

// The server stores the first entry of each batch but reports it as failed. A sender that repeats it sends it twice.
func ExampleServer() {
	ctx := context.Background()
	server := awssqstest.NewServer(awssqstest.Config{Fault: func(c awssqstest.Call) awssqstest.Fault {
		if c.Operation != "SendMessageBatch" {
			return awssqstest.Fault{}
		}
		return awssqstest.Fault{Entries: map[int]awssqstest.EntryFault{0: {Code: "InternalError", Done: true}}}
	}})
	queue, err := server.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("orders")})
	if err != nil {
		panic(err)
	}
	for range 2 {
		out, err := server.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: queue.QueueUrl, Entries: []types.SendMessageBatchRequestEntry{
			{Id: aws.String("1"), MessageBody: aws.String("order 42")},
		}})
		if err != nil {
			panic(err)
		}
		fmt.Println("failed:", len(out.Failed))
	}
	fmt.Println("stored:", len(server.Stored("orders")))
	// Output:
	// failed: 1
	// failed: 1
	// stored: 2
}
