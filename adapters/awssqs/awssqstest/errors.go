package awssqstest

import (
	"errors"
	"net/http"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

type operationError = smithy.OperationError

// operation wraps err like the SDK's client.
func operation(op string, err error) error {
	return &operationError{ServiceID: "SQS", OperationName: op, Err: err}
}

// fail wraps an error that the server returned in an HTTP response.
func fail(op string, err error) error {
	status := http.StatusBadRequest
	if apiErr := smithy.APIError(nil); errors.As(err, &apiErr) && apiErr.ErrorCode() == "AccessDenied" {
		status = http.StatusForbidden
	}
	return operation(op, &awshttp.ResponseError{
		RequestID: uuid(),
		ResponseError: &smithyhttp.ResponseError{
			Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status, Status: http.StatusText(status), Header: http.Header{}}},
			Err:      err,
		},
	})
}

func canceled(op string, err error) error {
	return operation(op, &smithy.CanceledError{Err: err})
}

// api is an error without a type in the SDK.
func api(code, message string) error {
	return &smithy.GenericAPIError{Code: code, Message: message, Fault: smithy.FaultClient}
}

func invalid(message string) error { return api("InvalidParameterValue", message) }

func missing(parameter string) error {
	return api("MissingParameter", "The request must contain the parameter "+parameter+".")
}

// required is the SDK's own error for an input without a required member.
func required(op, member string) error {
	params := smithy.InvalidParamsError{Context: op + "Input"}
	params.Add(smithy.NewErrParamRequired(member))
	return operation(op, params)
}

func noQueue() error {
	message, code := "The specified queue does not exist.", "AWS.SimpleQueueService.NonExistentQueue"
	// the SDK also sets the code of the older protocol
	return &types.QueueDoesNotExist{Message: &message, ErrorCodeOverride: &code}
}

// failed converts err to the result of one entry of a batch.
func failed(id *string, err error) *types.BatchResultErrorEntry {
	code, message := "InternalError", err.Error()
	sender := false
	if apiErr := smithy.APIError(nil); errors.As(err, &apiErr) {
		code, message, sender = apiErr.ErrorCode(), apiErr.ErrorMessage(), apiErr.ErrorFault() != smithy.FaultServer
	}
	return &types.BatchResultErrorEntry{Id: id, Code: &code, Message: &message, SenderFault: sender}
}

// batch checks the entry ids of a batch.
func batch(ids []*string) error {
	seen := make(map[string]bool, len(ids))
	switch {
	case len(ids) == 0:
		return &types.EmptyBatchRequest{Message: ptr("There should be at least one entry in the request.")}
	case len(ids) > maxEntries:
		return &types.TooManyEntriesInBatchRequest{Message: ptr("Maximum number of entries per request are 10.")}
	}
	for _, id := range ids {
		switch {
		case id == nil || !entryID.MatchString(*id):
			return &types.InvalidBatchEntryId{Message: ptr("A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters long.")}
		case seen[*id]:
			return &types.BatchEntryIdsNotDistinct{Message: ptr("Id " + *id + " repeated.")}
		}
		seen[*id] = true
	}
	return nil
}

func ptr[T any](v T) *T { return &v }
