package awssqs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/txonce/txonce/internal/publishing"
	"github.com/txonce/txonce/outbox"
)

// blame says whose fault an error of SQS is.
type blame int

const (
	theServer  blame = iota // SQS or the network failed
	theClient               // its credentials are wrong or its rate is too high: no message can be sent
	theQueue                // it is missing, or this client may not use it
	theRequest              // its messages are wrong
	unknown                 // this package does not know the reason
)

// blames has the codes of errors, as plainCode returns them.
var blames = map[string]blame{
	"NonExistentQueue": theQueue, "QueueDoesNotExist": theQueue, "QueueDeletedRecently": theQueue,
	"AccessDenied": theQueue, "AccessDeniedException": theQueue, "UnsupportedOperation": theQueue,
	"OverLimit":       theQueue,
	"KmsAccessDenied": theQueue, "KmsDisabled": theQueue, "KmsInvalidKeyUsage": theQueue, "KmsInvalidState": theQueue,
	"KmsNotFound":      theQueue,
	"KmsOptInRequired": theQueue, "KMS.AccessDeniedException": theQueue, "KMS.DisabledException": theQueue,
	"KMS.InvalidKeyUsageException": theQueue,
	"KMS.InvalidStateException":    theQueue, "KMS.NotFoundException": theQueue, "KMS.OptInRequired": theQueue,

	"RequestThrottled": theClient, "KmsThrottled": theClient, "KMS.ThrottlingException": theClient,
	"Throttling": theClient, "ThrottlingException": theClient,
	"ThrottledException": theClient, "TooManyRequestsException": theClient, "RequestLimitExceeded": theClient,
	"SlowDown":             theClient,
	"InvalidClientTokenId": theClient, "UnrecognizedClientException": theClient, "SignatureDoesNotMatch": theClient,
	"InvalidSignatureException": theClient,
	"IncompleteSignature":       theClient, "MissingAuthenticationToken": theClient,
	"MissingAuthenticationTokenException": theClient,
	"ExpiredToken":                        theClient, "ExpiredTokenException": theClient, "RequestExpired": theClient,
	"OptInRequired": theClient, "InvalidSecurity": theClient,
	"InvalidAccessKeyId": theClient, "NotAuthorized": theClient,

	"InternalError": theServer, "InternalFailure": theServer, "InternalServerError": theServer,
	"ServiceUnavailable":          theServer,
	"ServiceUnavailableException": theServer, "RequestTimeout": theServer, "RequestTimeoutException": theServer,

	"InvalidMessageContents": theRequest, "InvalidParameterValue": theRequest,
	"InvalidParameterCombination": theRequest, "MissingParameter": theRequest,
	"InvalidParameterValueException": theRequest, "BatchRequestTooLong": theRequest,
	"InvalidAttributeValue": theRequest, "InvalidAttributeName": theRequest,
	"MessageTooLong": theRequest, "EmptyValue": theRequest, "ValidationError": theRequest,
	"ValidationException": theRequest, "SerializationException": theRequest,
}

// plainCode is code without the prefix of the older protocol, or that of a shape's name.
func plainCode(code string) string {
	return strings.TrimPrefix(code[strings.LastIndexByte(code, '#')+1:], "AWS.SimpleQueueService.")
}

// blameOf says whose fault err is, the error of a whole request.
func blameOf(err error) blame {
	var answer smithy.APIError
	if !errors.As(err, &answer) {
		return theServer // connections, credentials that could not be had, checksums
	}
	if missingQueue(err) {
		return theQueue
	}
	if b, known := blames[plainCode(answer.ErrorCode())]; known {
		return b
	}
	var status interface{ HTTPStatusCode() int }
	if answer.ErrorFault() == smithy.FaultServer || errors.As(err, &status) && status.HTTPStatusCode() >= 500 {
		return theServer
	}
	return unknown
}

func missingQueue(err error) bool {
	var none *types.QueueDoesNotExist
	var answer smithy.APIError
	return errors.As(err, &none) || errors.As(err, &answer) && plainCode(answer.ErrorCode()) == "NonExistentQueue"
}

// classify returns err, the error of a whole request to a queue, in the form that the outbox needs. action is the
// permission that the request needs.
func classify(ctx context.Context, topic, action string, err error) error {
	named := fmt.Errorf("awssqs: queue %s: %w", topic, err)
	if ctx.Err() != nil {
		return publishing.Ended(ctx, fmt.Sprintf("awssqs: queue %s: no answer; the message may have arrived (%v)",
			topic, err))
	}
	switch blameOf(err) {
	case theServer, theClient:
		return &outbox.UnavailableError{Err: named}
	case theQueue:
		return &outbox.TopicError{Err: advise(named, action)}
	case theRequest:
		return &publishing.BatchError{Err: outbox.Permanent(named)}
	default:
		return &publishing.BatchError{Err: named}
	}
}

// advise adds to err what can be done about a queue that accepts no message.
func advise(err error, action string) error {
	var answer smithy.APIError
	switch errors.As(err, &answer); {
	case missingQueue(err):
		return fmt.Errorf("%w; create it (publishing does not), or set the Client to its region and account", err)
	case answer != nil && strings.HasPrefix(plainCode(answer.ErrorCode()), "AccessDenied"):
		return fmt.Errorf("%w; allow this client %s on it", err, action)
	default:
		return err
	}
}

// lookupFailed returns err, the error of a queue's lookup, in the form that the outbox needs: no message is at fault.
func lookupFailed(ctx context.Context, topic string, err error) error {
	if b := blameOf(err); ctx.Err() == nil && (b == theRequest || b == unknown) {
		return &outbox.TopicError{Err: fmt.Errorf("awssqs: queue %s: look up its URL: %w", topic, err)}
	}
	return classify(ctx, topic, "sqs:GetQueueUrl (or publish to its URL instead of its name)", err)
}

// refused is the answer to one entry of a batch.
func refused(topic string, f *types.BatchResultErrorEntry, e *entry) error {
	code, why := aws.ToString(f.Code), cmp.Or(aws.ToString(f.Message), "no reason is given")
	err := fmt.Errorf("awssqs: queue %s: refused: %w", topic, &smithy.GenericAPIError{Code: code, Message: why})
	b, known := blames[plainCode(code)]
	switch {
	case known && b == theQueue:
		return &outbox.TopicError{Err: advise(err, "sqs:SendMessage")}
	case known && (b == theServer || b == theClient):
		return &outbox.UnavailableError{Err: err}
	case f.SenderFault:
		return outbox.Permanent(fmt.Errorf("%w (the message has %d bytes with its attributes)", err, e.bytes))
	case known: // the code says that the request is wrong, and SenderFault says that it is not
		return err
	default:
		return &outbox.UnavailableError{Err: err}
	}
}

// refusedAlone is the answer to e, where err is the answer to a request with no other message.
func refusedAlone(err error, e *entry) error {
	if b := (*publishing.BatchError)(nil); errors.As(err, &b) {
		err = b.Err
		if outbox.IsPermanent(err) {
			err = outbox.Permanent(fmt.Errorf("%w (the message has %d bytes with its attributes)", err, e.bytes))
		}
	}
	return err
}
