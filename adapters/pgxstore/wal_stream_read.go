package pgxstore

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// receive reads until the connection ends. It stops reading while too much is outstanding, so that the server waits.
func (s *walSession) receive(stream *walStream) error {
	ctx := context.WithoutCancel(s.background) // cut ends it; a context that can end costs a goroutine for each message
	var deadline time.Time
	for {
		for s.window.full() {
			select {
			case <-s.window.room:
			case <-s.background.Done():
				return s.background.Err()
			}
		}
		if now := time.Now(); deadline.Sub(now) < walSilence/2 {
			deadline = now.Add(walSilence)
			_ = stream.net.SetReadDeadline(deadline)
		}
		msg, err := stream.conn.ReceiveMessage(ctx)
		if err != nil {
			return err
		}
		switch msg := msg.(type) {
		case *pgproto3.CopyData:
			if err := s.take(ctx, stream, msg.Data); err != nil {
				return err
			}
		case *pgproto3.ErrorResponse:
			return pgconn.ErrorResponseToPgError(msg)
		case *pgproto3.CopyDone:
			return errors.New("the server ended it")
		}
	}
}

// take takes in one message of the stream.
func (s *walSession) take(ctx context.Context, stream *walStream, data []byte) error {
	if len(data) == 0 {
		return errors.New("empty message")
	}
	switch data[0] {
	case pglogrepl.PrimaryKeepaliveMessageByteID:
		alive, err := pglogrepl.ParsePrimaryKeepaliveMessage(data[1:])
		if err != nil {
			return err
		}
		s.window.keepalive(alive.ServerWALEnd)
		if alive.ReplyRequested {
			return s.tell(ctx, stream, false)
		}
		return nil
	case pglogrepl.XLogDataByteID:
		x, err := pglogrepl.ParseXLogData(data[1:])
		if err != nil {
			return err
		}
		return s.takeData(stream.prefix, x.WALData)
	}
	return nil
}

func (s *walSession) takeData(prefix string, data []byte) error {
	if len(data) == 0 {
		return errors.New("empty message")
	}
	msg, err := pglogrepl.Parse(data)
	if err != nil {
		return err
	}
	switch msg := msg.(type) {
	case *pglogrepl.BeginMessage:
		s.window.begin(msg.FinalLSN)
	case *pglogrepl.CommitMessage:
		if err := s.window.end(msg.TransactionEndLSN); err != nil {
			return err
		}
	case *pglogrepl.LogicalDecodingMessage:
		if !msg.Transactional || msg.Prefix != prefix {
			return nil
		}
		if shard, key, ok := decodeTouch(msg.Content); ok {
			return s.window.touch(key, shard)
		}
		m, err := decodeWAL(msg.Content)
		if err != nil {
			return err
		}
		return s.window.add(m)
	}
	return nil
}

// tick tells the server now and then, so that it knows the relay to be there, and forgets what others wrote.
func (s *walSession) tick() {
	for n := 1; s.wait(walTick); n++ {
		s.settling.Lock()
		err := s.confirm(s.background, nil, false)
		s.settling.Unlock()
		s.mu.Lock()
		stream := s.stream
		s.mu.Unlock()
		if stream != nil && err == nil {
			_ = s.tell(s.background, stream, n%walPing == 0) // what is wrong with it, receive notices
		}
	}
}
