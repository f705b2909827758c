package awssqstest

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Call is one request, as passed to Config.Fault.
type Call struct {
	Operation string   // "SendMessageBatch"
	Nth       int      // number among the calls of this Operation, from 1
	Queue     string   // name of the queue; empty if the operation has none
	Entries   []string // for a batch: the Ids of its entries
	Input     any      // the caller's input, such as *sqs.SendMessageBatchInput
}

// Fault is how a call fails. The zero value is a normal call.
type Fault struct {
	Delay  time.Duration // wait this long first, or until the call's context ends
	Before error         // the call fails with this error and has no effect
	// the call fails with this error but has its effect: a receive leaves messages in flight that the caller never saw
	After   error
	Entries map[int]EntryFault // entries of a batch, by index
}

// EntryFault is how one entry of a batch fails.
type EntryFault struct {
	Code        string // the reported error, such as "InternalError"; empty: success
	SenderFault bool   // reported with the error
	Done        bool   // whether the entry has its effect
}

// ErrConnection is the error of the SDK's client when its connection breaks. Use it for Fault.Before and Fault.After.
var ErrConnection error = &smithyhttp.RequestSendError{Err: io.ErrUnexpectedEOF}

// enter begins a call. The returned Fault must be passed on to leave and, for each entry of a batch, to entry.
func (s *Server) enter(ctx context.Context, op string, url *string, input any, entries ...string) (f Fault, err error) {
	s.mu.Lock()
	s.calls[op]++
	decide, nth, cut, paused, denied := s.fault, s.calls[op], s.cut, s.paused, slices.Contains(s.denied, op)
	s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return f, canceled(op, err)
	}
	c := Call{Operation: op, Nth: nth, Entries: entries, Input: input}
	if url != nil {
		c.Queue, _ = strings.CutPrefix(*url, urlPrefix)
	}
	if decide != nil {
		f = decide(c)
	}
	if paused != nil {
		select {
		case <-paused:
		case <-ctx.Done():
			return f, canceled(op, ctx.Err())
		case <-cut:
			return f, operation(op, ErrConnection)
		}
	}
	if f.Delay > 0 {
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return f, canceled(op, ctx.Err())
		case <-cut:
			return f, operation(op, ErrConnection)
		}
	}
	switch {
	case s.isDown():
		return f, unreachable(op)
	case f.Before != nil:
		return f, operation(op, f.Before)
	case denied:
		return f, fail(op, api("AccessDenied", "User: arn:aws:iam::123456789012:user/test is not authorized to perform: sqs:"+op+" on resource: "+arnPrefix+c.Queue))
	}
	return f, nil
}

func (s *Server) isDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

// unreachable returns the error of a client that cannot connect.
func unreachable(op string) error {
	refused := &net.OpError{
		Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 443},
		Err: syscall.ECONNREFUSED,
	}
	return operation(op, &smithyhttp.RequestSendError{Err: refused})
}

// leave returns the caller's error for a call that ended with err. The fault may replace the answer.
func (f Fault) leave(op string, err error) error {
	if f.After != nil {
		return operation(op, f.After)
	}
	if err == nil || errors.As(err, new(*operationError)) {
		return err
	}
	return fail(op, err)
}

// entry runs do for entry i of a batch, unless a fault prevents it, and returns the entry's error.
func (f Fault) entry(i int, id *string, do func() error) *types.BatchResultErrorEntry {
	fault, faulty := f.Entries[i]
	if !faulty || fault.Done {
		if err := do(); err != nil {
			return failed(id, err)
		}
	}
	if !faulty || fault.Code == "" {
		return nil
	}
	message := "injected by a test"
	return &types.BatchResultErrorEntry{Id: id, Code: &fault.Code, SenderFault: fault.SenderFault, Message: &message}
}
