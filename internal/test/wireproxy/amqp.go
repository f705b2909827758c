package wireproxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"testing"
)

// amqpProtocol is AMQP 0-9-1, as RabbitMQ speaks it. A message is published in several frames: a method, a header, and
// the content. The server answers with a confirmation, if the channel was told to.
type amqpProtocol struct {
	channels map[uint16]*amqpChannel
}

type amqpChannel struct {
	confirms bool
	content  uint64 // bytes of the message that are still to come
	last     uint64 // number of the last message
	open     map[uint64]struct{}
}

const (
	amqpMethod, amqpHeader, amqpBody = 1, 2, 3

	// A class in the upper half, a method in the lower one.
	basicPublish  = 60<<16 | 40
	basicAck      = 60<<16 | 80
	basicNack     = 60<<16 | 120
	confirmSelect = 85<<16 | 10
)

// Publish is the Statement of the frames that publish a message, and of its confirmation.
const Publish = "publish"

var amqpKinds = map[uint32]string{
	basicPublish: "basic.publish", basicAck: "basic.ack", basicNack: "basic.nack", confirmSelect: "confirm.select",
}

// ThroughAMQP starts a proxy for a broker of RabbitMQ at a host and a port.
func ThroughAMQP(t testing.TB, broker string, cfg Config) *Proxy {
	t.Helper()
	return start(t, cfg, "tcp", broker, func() protocol { return &amqpProtocol{channels: map[uint16]*amqpChannel{}} })
}

func (*amqpProtocol) startup(s *session) bool { return s.connect() }

// readFrame reads a frame, or the name of the protocol, which comes first.
func readFrame(in io.Reader) ([]byte, error) {
	var m bytes.Buffer
	if _, err := io.CopyN(&m, in, 7); err != nil {
		return nil, err
	}
	head := m.Bytes()
	n := int64(1)
	if head[0] != 'A' {
		n += int64(binary.BigEndian.Uint32(head[3:])) // and the byte that ends a frame
	}
	if n > maxMessage {
		return nil, fmt.Errorf("wireproxy: a message of %d bytes", n)
	}
	_, err := io.CopyN(&m, in, n)
	return m.Bytes(), err
}

// method returns the class and method of a frame; 0: it is none.
func method(raw []byte) uint32 {
	if len(raw) < 12 || raw[0] != amqpMethod {
		return 0
	}
	return binary.BigEndian.Uint32(raw[7:])
}

func (w *amqpProtocol) request(in *bufio.Reader) (packet, bool, error) {
	raw, err := readFrame(in)
	if err != nil {
		return packet{}, false, err
	}
	f := Frame{Kind: amqpKind(raw)}
	if m := method(raw); m == basicPublish || raw[0] == amqpHeader || raw[0] == amqpBody {
		f.Statement = Publish
	}
	return packet{raw: raw, Frame: f}, false, nil
}

func amqpKind(raw []byte) string {
	switch raw[0] {
	case amqpMethod:
		m := method(raw)
		if kind, known := amqpKinds[m]; known {
			return kind
		}
		return fmt.Sprintf("method %d.%d", m>>16, m&0xffff)
	case amqpHeader:
		return "header"
	case amqpBody:
		return "body"
	default:
		return "frame"
	}
}

func (w *amqpProtocol) channel(raw []byte) *amqpChannel {
	n := binary.BigEndian.Uint16(raw[1:])
	c := w.channels[n]
	if c == nil {
		c = &amqpChannel{open: map[uint64]struct{}{}}
		w.channels[n] = c
	}
	return c
}

func (w *amqpProtocol) sent(m packet) {
	c := w.channel(m.raw)
	switch {
	case method(m.raw) == confirmSelect:
		c.confirms = true
	case m.raw[0] == amqpHeader && len(m.raw) >= 7+12:
		c.content = binary.BigEndian.Uint64(m.raw[7+4:])
		if c.content == 0 {
			c.published()
		}
	case m.raw[0] == amqpBody:
		n := uint64(len(m.raw) - 8)
		if c.content -= min(n, c.content); c.content == 0 {
			c.published()
		}
	}
}

func (c *amqpChannel) published() {
	if c.confirms {
		c.last++
		c.open[c.last] = struct{}{}
	}
}

func (*amqpProtocol) answer(in *bufio.Reader) ([]byte, error) { return readFrame(in) }

func (w *amqpProtocol) received(raw []byte) (f Frame, hidden bool) {
	f = Frame{FromServer: true, Kind: amqpKind(raw)}
	m := method(raw)
	if m != basicAck && m != basicNack || len(raw) < 7+4+9 {
		return f, false
	}
	f.Statement = Publish
	c := w.channel(raw)
	tag, several := binary.BigEndian.Uint64(raw[11:]), raw[19]&1 != 0
	for open := range c.open {
		if open == tag || several && open <= tag {
			delete(c.open, open)
		}
	}
	return f, false
}

func (w *amqpProtocol) idle() bool {
	for _, c := range w.channels {
		if len(c.open) > 0 {
			return false
		}
	}
	return true
}

func (*amqpProtocol) completion() []packet            { return nil }
func (*amqpProtocol) failure(packet, string) []packet { return nil }
func (*amqpProtocol) reset() []packet                 { return nil }
