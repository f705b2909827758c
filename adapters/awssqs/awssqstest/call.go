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

// Call is one request, as Config.Fault sees it.
type Call struct {
	Operation string   // "SendMessageBatch"
	Nth       int      // among the calls of its Operation, from 1
	Queue     string   // its name; empty where the operation has none yet
	Entries   []string // of a batch: the Ids of its entries
	Input     any      // what the caller passed: *sqs.SendMessageBatchInput
}

// Fault is what becomes of a call. The zero value: nothing special.
type Fault struct {
	Delay   time.Duration      // before anything happens; the call's context ends it
	Before  error              // the answer; nothing has happened
	After   error              // the answer; everything has happened. Of a receive, messages are in flight that nobody has
	Entries map[int]EntryFault // of a batch, by index
}

// EntryFault is what becomes of one entry of a batch.
type EntryFault struct {
	Code        string // what is reported: "InternalError"; empty: success
	SenderFault bool   // whose fault is reported
	Done        bool   // whether it has taken effect
}

// ErrConnection is what a client of the SDK gets when its connection breaks: for Fault.Before and Fault.After.
var ErrConnection error = &smithyhttp.RequestSendError{Err: io.ErrUnexpectedEOF}

// enter begins a call. Its fault goes on in leave, and in entry for each entry of a batch.
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

// unreachable is what a client gets that finds nobody to connect to.
func unreachable(op string) error {
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 443}, Err: syscall.ECONNREFUSED}
	return operation(op, &smithyhttp.RequestSendError{Err: refused})
}

// leave returns what the caller gets of a call that has come to err: the answer may be lost on the way.
func (f Fault) leave(op string, err error) error {
	if f.After != nil {
		return operation(op, f.After)
	}
	if err == nil || errors.As(err, new(*operationError)) {
		return err
	}
	return fail(op, err)
}

// entry is the fate of entry i of a batch, done by do where it is done.
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
