package wireproxy

import (
	"bufio"
	"bytes"
)

var IsCommit = isCommit

// PassOn reads all messages from in as those of a client, and returns what the proxy would forward.
func PassOn(in []byte) []byte { return passOn(&postgresProtocol{}, in) }

// PassOnPackets is PassOn for MySQL's packets.
func PassOnPackets(in []byte) []byte { return passOn(&mysqlProtocol{}, in) }

func passOn(w protocol, in []byte) (out []byte) {
	rest := bufio.NewReader(bytes.NewReader(in))
	for {
		m, _, err := w.request(rest)
		if err != nil {
			return out
		}
		w.sent(m)
		out = append(out, m.raw...)
	}
}

// PassBack reads all messages from in as a server's answers to these requests.
func PassBack(requests, in []byte) []byte { return passBack(&postgresProtocol{}, requests, in) }

// PassBackPackets is PassBack for MySQL's packets.
func PassBackPackets(requests, in []byte) []byte { return passBack(&mysqlProtocol{}, requests, in) }

func passBack(w protocol, requests, in []byte) (out []byte) {
	passOn(w, requests)
	rest := bufio.NewReader(bytes.NewReader(in))
	for {
		raw, err := w.answer(rest)
		if err != nil {
			return out
		}
		w.received(raw)
		out = append(out, raw...)
	}
}

// Brokers reads all messages from in with the protocols of brokers, as those of a client and of a server.
func Brokers(in []byte) (outs [][]byte) {
	for _, w := range []protocol{&kafkaProtocol{}, &amqpProtocol{channels: map[uint16]*amqpChannel{}}} {
		outs = append(outs, passOn(w, in), passBack(w, in, in))
	}
	return outs
}

// AcksAt and Refused read Kafka's Produce and the answer to it.
var (
	AcksAt  = acksAt
	Refused = refused
)
