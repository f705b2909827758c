package wireproxy

import "bytes"

var IsCommit = isCommit

// PassOn reads messages from in until there are no more, and returns what the proxy would pass on.
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

// PassOnPackets is PassOn for MySQL.
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
