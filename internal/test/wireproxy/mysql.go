package wireproxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// mysqlProtocol is the protocol of MySQL and MariaDB: packets with a three-byte length, a number and a body, in both
// directions. The first packet of a command has number 0, and the server only answers.
type mysqlProtocol struct {
	statements   map[uint32]text // prepared ones
	deprecateEOF bool            // no EOF between the columns and the rows of an answer
	pending      []*command
}

// command is what the server must answer.
type command struct {
	Frame
	code   byte
	hidden bool

	columns int // packets that describe columns or parameters and are still to come
	rows    bool
	second  int // a prepared statement's columns, which follow its parameters
}

// The commands that the proxy knows.
const (
	comQuit, comQuery, comPing          = 1, 3, 14
	comPrepare, comExecute, comLongData = 22, 23, 24
	comClose, comResetConnection        = 25, 31
)

const (
	packetOK, packetEOF, packetErr = 0x00, 0xfe, 0xff

	moreResults = 0x0008 // a flag of the server's status
)

var commandKinds = map[byte]string{
	comQuit: "COM_QUIT", comQuery: "COM_QUERY", comPing: "COM_PING", comPrepare: "COM_STMT_PREPARE",
	comExecute: "COM_STMT_EXECUTE", comLongData: "COM_STMT_SEND_LONG_DATA", comClose: "COM_STMT_CLOSE",
	comResetConnection: "COM_RESET_CONNECTION",
}

func readPacket(in io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return nil, err
	}
	n := int64(head[0]) | int64(head[1])<<8 | int64(head[2])<<16
	var packet bytes.Buffer // grows with the received bytes, not with the announced length
	packet.Write(head[:])
	if _, err := io.CopyN(&packet, in, n); err != nil {
		return nil, err
	}
	return packet.Bytes(), nil
}

// commandPacket returns the packet of a command.
func commandPacket(code byte, argument string) []byte {
	n := len(argument) + 1
	return append([]byte{byte(n), byte(n >> 8), byte(n >> 16), 0, code}, argument...)
}

// isCommand reports whether a client's packet begins a command.
func isCommand(raw []byte) bool { return len(raw) > 4 && raw[3] == 0 }

func (w *mysqlProtocol) request(in *bufio.Reader) (packet, bool, error) {
	raw, err := readPacket(in)
	if err != nil {
		return packet{}, false, err
	}
	if !isCommand(raw) {
		return packet{raw: raw, Frame: Frame{Kind: "data"}}, false, nil
	}
	code := raw[4]
	kind, known := commandKinds[code]
	if !known {
		kind = fmt.Sprintf("command %d", code)
	}
	var t text
	switch code {
	case comQuery, comPrepare:
		t = text{string(raw[5:]), isCommit(string(raw[5:]))}
	case comExecute, comLongData, comClose:
		if len(raw) >= 9 {
			t = w.statements[binary.LittleEndian.Uint32(raw[5:])]
		}
	default:
		t.sql = kind
	}
	return packet{raw: raw, Frame: Frame{
		Kind: kind, Statement: t.sql, Commit: t.commit, answers: code == comQuery || code == comExecute,
	}}, code == comQuit, nil
}

func (w *mysqlProtocol) sent(m packet) {
	if !isCommand(m.raw) {
		return
	}
	switch code := m.raw[4]; code {
	case comQuit, comLongData, comClose: // have no answer
	default:
		w.pending = append(w.pending, &command{Frame: m.Frame, code: code, hidden: m.hidden})
	}
}

func (w *mysqlProtocol) answer(in *bufio.Reader) ([]byte, error) { return readPacket(in) }

func (w *mysqlProtocol) received(raw []byte) (f Frame, hidden bool) {
	f = Frame{FromServer: true, Kind: "packet"}
	if len(w.pending) == 0 || len(raw) < 5 {
		return f, false
	}
	c := w.pending[0]
	f.Statement, f.Commit, f.failed = c.Statement, c.Commit, told(c.failed, raw)
	done := false
	if f.Kind, done = w.next(c, raw[4:]); done {
		w.pending = w.pending[1:]
	}
	return f, c.hidden
}

// next takes one packet of the answer to c. done says that it is the last one.
func (w *mysqlProtocol) next(c *command, body []byte) (kind string, done bool) {
	first := body[0]
	switch {
	case c.columns > 0:
		c.columns--
		if c.columns > 0 || c.rows {
			return "column", false
		}
		c.columns, c.second = c.second, 0
		return "column", c.columns == 0
	case first == packetErr:
		return "ERR", true
	case c.rows:
		if first != packetEOF || len(body) >= 9 && !w.deprecateEOF {
			return "row", false
		}
		c.rows = false
		return "EOF", !w.more(body)
	case c.code == comPrepare && first == packetOK && len(body) >= 9:
		w.prepared(c, body)
		return "OK", c.columns == 0
	case first == packetOK || c.code != comQuery && c.code != comExecute:
		return "OK", !w.moreAfterOK(body)
	}
	c.rows, c.columns = true, int(lengthEncoded(body))
	if !w.deprecateEOF {
		c.columns++
	}
	return "columns", false
}

// prepared remembers what a statement's number stands for, and which packets follow.
func (w *mysqlProtocol) prepared(c *command, body []byte) {
	if w.statements == nil {
		w.statements = map[uint32]text{}
	}
	w.statements[binary.LittleEndian.Uint32(body[1:])] = text{c.Statement, c.Commit}
	packets := func(n uint16) int {
		if n == 0 || w.deprecateEOF {
			return int(n)
		}
		return int(n) + 1
	}
	c.second, c.columns = packets(binary.LittleEndian.Uint16(body[5:])), packets(binary.LittleEndian.Uint16(body[7:]))
	if c.columns == 0 {
		c.columns, c.second = c.second, 0
	}
}

// more reports whether another result follows the packet that ends rows.
func (w *mysqlProtocol) more(body []byte) bool {
	if w.deprecateEOF {
		return w.moreAfterOK(body)
	}
	return len(body) >= 5 && binary.LittleEndian.Uint16(body[3:])&moreResults != 0
}

func (*mysqlProtocol) moreAfterOK(body []byte) bool {
	rest := body[1:]
	for range 2 { // affected rows and the last ID
		rest = rest[min(len(rest), lengthOfEncoded(rest)):]
	}
	return len(rest) >= 2 && binary.LittleEndian.Uint16(rest)&moreResults != 0
}

func lengthOfEncoded(b []byte) int {
	if len(b) == 0 {
		return 0
	}
	switch b[0] {
	case 0xfc:
		return 3
	case 0xfd:
		return 4
	case 0xfe:
		return 9
	default:
		return 1
	}
}

func lengthEncoded(b []byte) (n uint64) {
	if b[0] < 0xfb {
		return uint64(b[0])
	}
	for i := min(lengthOfEncoded(b), len(b)) - 1; i > 0; i-- {
		n = n<<8 | uint64(b[i])
	}
	return n
}

func (w *mysqlProtocol) idle() bool { return len(w.pending) == 0 }

func (*mysqlProtocol) completion() []packet { return nil }

// deadlock is the error after which the server has rolled back the whole transaction.
const deadlock = "1213"

func (w *mysqlProtocol) failure(m packet, code string) []packet {
	var ms []packet
	if m.Commit || code == deadlock {
		ms = append(ms, packet{raw: commandPacket(comQuery, "ROLLBACK"), hidden: true})
	}
	state := map[string]string{deadlock: "40001"}[code]
	if state == "" {
		state = "HY000"
	}
	signal := fmt.Sprintf("SIGNAL SQLSTATE '%s' SET MYSQL_ERRNO = %s, MESSAGE_TEXT = '%s'", state, code, injected)
	return append(ms, packet{raw: commandPacket(comQuery, signal), Frame: m.Frame})
}

// reset rolls back and forgets everything; the second command sets what clients set while they connect.
func (w *mysqlProtocol) reset() []packet {
	return []packet{
		{raw: commandPacket(comResetConnection, ""), hidden: true},
		{raw: commandPacket(comQuery, "SET NAMES utf8mb4"), hidden: true},
	}
}
