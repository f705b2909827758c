package wireproxy

import (
	"bufio"
	"fmt"
	"strings"
)

// postgresProtocol is PostgreSQL's protocol.
type postgresProtocol struct {
	statements, portals statements
	pending             []owed
	failed              bool // after an error the server skips all until the next Sync
	copying             bool // the server waits for rows, and not for statements
	last                Frame
}

// owed is what the server must answer.
type owed struct {
	Frame
	kind   byte
	hidden bool
}

// text is what a statement's name stands for.
type text struct {
	sql    string
	commit bool
}

type statements map[string]text

func (s *statements) set(name string, t text) {
	if *s == nil {
		*s = statements{}
	}
	(*s)[name] = t
}

// The names of the messages, of the client and of the server.
var (
	clientKinds = map[byte]string{
		query: "Query", parse: "Parse", bind: "Bind", execute: "Execute", describe: "Describe", closing: "Close",
		syncing: "Sync", flush: "Flush", 'd': "CopyData", 'c': "CopyDone", 'f': "CopyFail", terminate: "Terminate",
	}
	serverKinds = map[byte]string{
		'1': "ParseComplete", '2': "BindComplete", '3': "CloseComplete", 't': "ParameterDescription",
		'T': "RowDescription", 'n': "NoData", 'D': "DataRow", commandComplete: "CommandComplete",
		errorResponse: "ErrorResponse", readyForQuery: "ReadyForQuery", 'I': "EmptyQueryResponse", 's': "PortalSuspended",
		'N': "NoticeResponse", 'A': "NotificationResponse", 'S': "ParameterStatus", 'G': "CopyInResponse",
		'H': "CopyOutResponse", 'd': "CopyData", 'c': "CopyDone", 'K': "BackendKeyData", 'R': "Authentication",
	}
)

func (w *postgresProtocol) request(in *bufio.Reader) (packet, bool, error) {
	m, err := readMessage(in)
	if err != nil {
		return packet{}, false, err
	}
	t := w.belongs(m)
	kind, known := clientKinds[m.kind]
	if !known {
		kind = string(m.kind)
	}
	return packet{raw: m.bytes(), Frame: Frame{
		Kind: kind, Statement: t.sql, Commit: t.commit, answers: m.kind == query || m.kind == execute,
	}}, m.kind == terminate, nil
}

// belongs returns the statement that a client's message belongs to, and remembers what names stand for.
func (w *postgresProtocol) belongs(m message) (t text) {
	name, rest, _ := strings.Cut(string(m.body), "\x00")
	second, _, _ := strings.Cut(rest, "\x00")
	switch m.kind {
	case query:
		t = text{name, isCommit(name)}
	case parse: // name, statement
		t = text{second, isCommit(second)}
		w.statements.set(name, t)
	case bind: // portal, name
		t = w.statements[second]
		w.portals.set(name, t)
	case execute: // portal
		t = w.portals[name]
	case describe, closing: // S or P, name
		if strings.HasPrefix(name, "S") {
			t = w.statements[name[1:]]
		} else if name != "" {
			t = w.portals[name[1:]]
		}
	default: // Sync belongs to what precedes it
		t = text{w.last.Statement, w.last.Commit}
	}
	w.last.Statement, w.last.Commit = t.sql, t.commit
	return t
}

func (w *postgresProtocol) sent(m packet) {
	kind := m.raw[0]
	switch kind {
	case query, parse, bind, describe, execute, closing:
		if w.failed {
			return
		}
	case syncing:
		w.failed = false
	default:
		return
	}
	w.pending = append(w.pending, owed{m.Frame, kind, m.hidden})
}

func (w *postgresProtocol) answer(in *bufio.Reader) ([]byte, error) {
	m, err := readMessage(in)
	return m.bytes(), err
}

func (w *postgresProtocol) received(raw []byte) (f Frame, hidden bool) {
	f = Frame{FromServer: true, Kind: serverKinds[raw[0]]}
	if len(w.pending) == 0 {
		return f, false
	}
	head := w.pending[0]
	f.Statement, f.Commit, f.failed = head.Statement, head.Commit, told(head.failed, raw)
	hidden = head.hidden && raw[0] != errorResponse // an error is the answer also to what follows it
	switch raw[0] {
	case 'N', 'A', 'S': // come at any time
	case 'G', 'W':
		w.copying = true
	case readyForQuery:
		w.copying = false
		w.pop(query, syncing)
	case errorResponse:
		if head.kind != query {
			w.skip()
		}
	case '1', '2', '3', 'n', 'I', 's', commandComplete:
		if head.kind != query {
			w.pending = w.pending[1:]
		}
	case 'T':
		if head.kind == describe {
			w.pending = w.pending[1:]
		}
	}
	return f, hidden
}

// pop removes what is answered up to the first of these.
func (w *postgresProtocol) pop(kinds ...byte) {
	for i, p := range w.pending {
		for _, k := range kinds {
			if p.kind == k {
				w.pending = w.pending[i+1:]
				return
			}
		}
	}
}

// skip removes what the server skips after an error.
func (w *postgresProtocol) skip() {
	for i, p := range w.pending {
		if p.kind == syncing {
			w.pending = w.pending[i:]
			return
		}
	}
	w.pending, w.failed = nil, true
}

func (w *postgresProtocol) idle() bool { return len(w.pending) == 0 && !w.failed }

// completion is a Sync, unless the last message ends with one itself.
func (w *postgresProtocol) completion() []packet {
	if n := len(w.pending); w.failed || n > 0 && w.pending[n-1].kind != query && w.pending[n-1].kind != syncing {
		return []packet{{raw: syncMessage.bytes(), Frame: Frame{Kind: "Sync", Statement: w.last.Statement, Commit: w.last.Commit}}}
	}
	return nil
}

// failure makes the server fail in place of m. What comes before m stays as it is.
func (w *postgresProtocol) failure(m packet, code string) []packet {
	raise := fmt.Sprintf("DO $$ BEGIN RAISE '%s' USING ERRCODE = '%s'; END $$", injected, code)
	var ms []packet
	if m.Commit {
		for _, sent := range commands(m.raw[0], "ROLLBACK") {
			ms = append(ms, packet{raw: sent, hidden: true})
		}
	}
	all := commands(m.raw[0], raise)
	for i, sent := range all {
		ms = append(ms, packet{raw: sent, hidden: i < len(all)-1, Frame: m.Frame})
	}
	return ms
}

// commands returns the messages that run a statement in the way of a message of this kind.
func commands(kind byte, sql string) (raw [][]byte) {
	ms := []message{{query, []byte(sql + "\x00")}}
	if kind == execute {
		ms = []message{
			{parse, []byte("\x00" + sql + "\x00\x00\x00")}, // no types
			{bind, make([]byte, 8)},                        // unnamed, no arguments
			{execute, make([]byte, 5)},                     // unnamed, all rows
		}
	}
	for _, m := range ms {
		raw = append(raw, m.bytes())
	}
	return raw
}

func (w *postgresProtocol) reset() (ms []packet) {
	if w.copying {
		return nil
	}
	for _, sql := range []string{"ROLLBACK", "DISCARD ALL"} {
		ms = append(ms, packet{raw: message{query, []byte(sql + "\x00")}.bytes(), hidden: true})
	}
	return ms
}
