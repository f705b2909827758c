package watermilltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/txonce/txonce/outbox"
)

// Classify is the default of PublisherConfig.Classify. Errors of connections, and of a server that is out of resources
// or shuts down, are an *outbox.UnavailableError. A topic's table on PostgreSQL that is missing or denied is an
// *outbox.TopicError. Every other error counts against the message, which is tried again and in the end parked in the
// outbox: Classify does not know the errors of each publisher. If the broker has topics that may be missing, set
// PublisherConfig.Classify to a function that knows that error.
func Classify(topic string, err error) error {
	named := fmt.Errorf("watermilltx: topic %q: %w", topic, err)
	for _, lost := range []error{
		io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, driver.ErrBadConn, sql.ErrConnDone,
		context.DeadlineExceeded,
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, syscall.ETIMEDOUT,
		syscall.EHOSTUNREACH, syscall.ENETUNREACH,
	} {
		if errors.Is(err, lost) {
			return &outbox.UnavailableError{Err: named}
		}
	}
	var network net.Error
	var answer interface{ SQLState() string }
	switch {
	case errors.As(err, &network):
		return &outbox.UnavailableError{Err: named}
	case errors.As(err, &answer) && unavailable(answer.SQLState()):
		return &outbox.UnavailableError{Err: named}
	case errors.As(err, &answer) && (answer.SQLState() == undefinedTable || answer.SQLState() == denied):
		return &outbox.TopicError{Err: named}
	}
	return named
}

// SQLSTATEs of watermill-sql's publisher, which has a table for each topic.
const (
	undefinedTable = "42P01"
	denied         = "42501"
)

// unavailable reports whether a SQLSTATE is about connections, resources, or an operator's intervention.
func unavailable(state string) bool {
	return len(state) == 5 && (state[:2] == "08" || state[:2] == "53" || state[:2] == "57")
}
