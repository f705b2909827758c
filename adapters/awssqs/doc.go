// Package awssqs receives from Amazon SQS and sends to it, on aws-sdk-go-v2.
package awssqs
