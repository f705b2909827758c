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

// Classify is the default of PublisherConfig.Classify. What is a connection's fault, or a server's that has no room or shuts
// down, is an *outbox.UnavailableError. It knows no publisher's own errors: everything else counts against the message, which
// is tried again and parked in the outbox in the end.
func Classify(topic string, err error) error {
	named := fmt.Errorf("watermilltx: topic %q: %w", topic, err)
	for _, lost := range []error{
		io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, driver.ErrBadConn, sql.ErrConnDone, context.DeadlineExceeded,
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH,
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
	}
	return named
}

// unavailable: no connection, no resources, an operator's intervention.
func unavailable(state string) bool {
	return len(state) == 5 && (state[:2] == "08" || state[:2] == "53" || state[:2] == "57")
}
