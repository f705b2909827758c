package wireproxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
)

// kafkaProtocol is Kafka's protocol: requests with a length and a number, and answers in the order of the requests.
type kafkaProtocol struct{ pending []Frame }

var kafkaKinds = map[uint16]string{
	0: "Produce", 1: "Fetch", 2: "ListOffsets", 3: "Metadata", 8: "OffsetCommit", 9: "OffsetFetch", 10: "FindCoordinator",
	11: "JoinGroup", 12: "Heartbeat", 13: "LeaveGroup", 14: "SyncGroup", 18: "ApiVersions", 22: "InitProducerId",
}

// ThroughKafka starts a proxy for one broker. A client must connect through it to whatever address the broker tells.
func ThroughKafka(t testing.TB, broker string, cfg Config) *Proxy {
	t.Helper()
	return start(t, cfg, "tcp", broker, func() protocol { return &kafkaProtocol{} })
}

// Dialer connects to the proxy in place of any address. It is a Dialer of golang.org/x/net/proxy, which sarama takes.
type Dialer struct{ Proxy *Proxy }

// Dial connects.
func (d Dialer) Dial(network, _ string) (net.Conn, error) {
	return net.Dial(network, d.Proxy.Addr().String())
}

func readSized(in io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxMessage {
		return nil, fmt.Errorf("wireproxy: a message of %d bytes", n)
	}
	var m bytes.Buffer // grows with the received bytes, not with the announced length
	m.Write(head[:])
	if _, err := io.CopyN(&m, in, int64(n)); err != nil {
		return nil, err
	}
	return m.Bytes(), nil
}

func (*kafkaProtocol) startup(s *session) bool { return s.connect() }

// connect opens a session of a server that does not speak before it is asked.
func (s *session) connect() bool {
	if !s.connecting() {
		return false
	}
	u, err := s.dial()
	return err == nil && s.attach(u)
}

func (*kafkaProtocol) request(in *bufio.Reader) (packet, bool, error) {
	raw, err := readSized(in)
	if err != nil || len(raw) < 8 {
		return packet{raw: raw}, false, err
	}
	api := binary.BigEndian.Uint16(raw[4:])
	kind, known := kafkaKinds[api]
	if !known {
		kind = fmt.Sprintf("request %d", api)
	}
	return packet{raw: raw, Frame: Frame{Kind: kind, Statement: kind, answers: acksAt(raw) > 0}}, false, nil
}

// The answer of a broker that was asked for a number of acknowledgements that there is not. It appends nothing then.
const (
	noSuchAcks          = 5
	invalidRequiredAcks = 21 // a code of errors
)

// produceVersion is that of sarama's Produce requests.
const produceVersion = 9

// acksAt returns where a Produce request says how many acknowledgements it wants; 0: it is another request.
func acksAt(raw []byte) int {
	if len(raw) < 16 || binary.BigEndian.Uint16(raw[4:]) != 0 || binary.BigEndian.Uint16(raw[6:]) != produceVersion {
		return 0
	}
	at := 14 + max(0, int(int16(binary.BigEndian.Uint16(raw[12:])))) // behind the client's ID
	at = afterCompact(raw, at+1)                                     // no tags; behind the transaction's ID
	if at+2 > len(raw) {
		return 0
	}
	return at
}

// afterCompact returns where a compact text ends: its length comes before it, plus one, and 0 for none.
func afterCompact(raw []byte, at int) int {
	if at >= len(raw) {
		return len(raw)
	}
	n, size := binary.Uvarint(raw[at:])
	return at + size + max(0, int(n)-1)
}

// refused reports whether the first partition of an answer to Produce has that error: they all have it, or none.
func refused(raw []byte) bool {
	const topic = 10                       // behind the length, the number of the request, no tags, and how many topics there are
	at := afterCompact(raw, topic) + 1 + 4 // how many partitions there are, and the first one's number
	return at+2 <= len(raw) && binary.BigEndian.Uint16(raw[at:]) == invalidRequiredAcks
}

func (w *kafkaProtocol) sent(m packet) { w.pending = append(w.pending, m.Frame) }

func (*kafkaProtocol) answer(in *bufio.Reader) ([]byte, error) { return readSized(in) }

func (w *kafkaProtocol) received(raw []byte) (f Frame, hidden bool) {
	if len(w.pending) > 0 {
		f, w.pending = w.pending[0], w.pending[1:]
	}
	f.FromServer = true
	if f.failed != nil && !refused(raw) {
		f.failed = nil
	}
	return f, false
}

func (w *kafkaProtocol) idle() bool         { return len(w.pending) == 0 }
func (*kafkaProtocol) completion() []packet { return nil }
func (*kafkaProtocol) reset() []packet      { return nil }

// failure makes the broker refuse a Produce. The code is always the same.
func (*kafkaProtocol) failure(m packet, _ string) []packet {
	raw := bytes.Clone(m.raw)
	binary.BigEndian.PutUint16(raw[acksAt(raw):], noSuchAcks)
	return []packet{{raw: raw, Frame: m.Frame}}
}
