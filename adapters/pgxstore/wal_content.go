package pgxstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/outbox"
)

// walVersion is the first byte of what is emitted. A relay that meets another one stops and says so, since it comes from a
// newer program.
const walVersion = 1

// walKeyInTables is the first byte of a note that something of a key is in the tables again: its shard and the key follow.
const walKeyInTables = 'k'

var errWALContent = errors.New("pgxstore: outbox: content of the write-ahead log")

// decodeWAL reads what dialect.PostgresWAL emits: version, seq, time in microseconds since 2000, shard, then id, topic, key
// and headers with their lengths before them, and the payload. The message shares nothing with content.
func decodeWAL(content []byte) (m outbox.Leased, err error) {
	r := walReader{rest: content}
	if version := r.take(1); r.short {
		return m, fmt.Errorf("%w: empty", errWALContent)
	} else if version[0] != walVersion {
		return m, fmt.Errorf("%w: version %d, this program reads %d: a newer program has emitted it", errWALContent, version[0], walVersion)
	}
	m.Seq = int64(r.uint64())
	m.Enqueued = pgTime(int64(r.uint64()))
	m.Shard = int(r.uint16())
	m.ID = string(r.field())
	m.Topic = string(r.field())
	m.Key = string(r.field())
	headers := r.field()
	if r.short {
		return m, fmt.Errorf("%w: %d bytes, too short", errWALContent, len(content))
	}
	if len(headers) > 0 {
		if m.Headers, err = consumer.DecodeHeaders(headers); err != nil {
			return m, fmt.Errorf("%w: message %d: headers: %w", errWALContent, m.Seq, err)
		}
	}
	m.Payload = append([]byte{}, r.rest...)
	return m, nil
}

// decodeTouch reads a note of walKeyInTables.
func decodeTouch(content []byte) (shard int, key string, ok bool) {
	if len(content) < 1 || content[0] != walKeyInTables {
		return 0, "", false
	}
	r := walReader{rest: content[1:]}
	shard = int(r.uint16())
	return shard, string(r.rest), !r.short
}

// walReader takes a content apart; short: it has ended too early.
type walReader struct {
	rest  []byte
	short bool
}

func (r *walReader) take(n int) []byte {
	if r.short || n < 0 || n > len(r.rest) {
		r.short = true
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *walReader) uint64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *walReader) uint16() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *walReader) field() []byte {
	if b := r.take(4); b != nil {
		return r.take(int(int32(binary.BigEndian.Uint32(b))))
	}
	return nil
}

// pgTime is a timestamptz as the server sends it.
func pgTime(microseconds int64) time.Time {
	const y2k = 946_684_800
	return time.Unix(y2k+microseconds/1e6, microseconds%1e6*1e3)
}
