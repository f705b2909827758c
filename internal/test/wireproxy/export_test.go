package wireproxy

import "bytes"

var IsCommit = isCommit

// PassOn reads all messages from in and returns what the proxy would forward.
func PassOn(in []byte) (out []byte) {
	var known commits
	rest := bytes.NewReader(in)
	for {
		m, err := readMessage(rest)
		if err != nil {
			return out
		}
		known.isCommit(m)
		m.endsCommit()
		out = append(out, m.bytes()...)
	}
}

// PassOnPackets is PassOn for MySQL's packets.
func PassOnPackets(in []byte) (out []byte) {
	rest := bytes.NewReader(in)
	for {
		p, err := readPacket(rest)
		if err != nil {
			return out
		}
		out = append(out, p...)
	}
}
