package wireproxy

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/txonce/txonce/dedup/deduptest"
	"github.com/txonce/txonce/internal/test/dsn"
)

// MySQL is like Postgres for MySQL and MariaDB, with DSNs of go-sql-driver/mysql.
func MySQL(t testing.TB, direct string, f deduptest.Fault) string {
	t.Helper()
	return throughMySQL(t, direct, func(network, address string) *net.TCPAddr {
		return start(t, f, network, address, func() wire { return mysqlWire{} })
	})
}

// MySQLEach is MySQL with a fault for each COMMIT that pick chooses. pick must be safe for concurrent use.
func MySQLEach(t testing.TB, direct string, pick func() (f deduptest.Fault, strike bool)) string {
	t.Helper()
	return throughMySQL(t, direct, func(network, address string) *net.TCPAddr {
		return startEach(t, pick, network, address, func() wire { return mysqlWire{} })
	})
}

func throughMySQL(t testing.TB, direct string, start func(network, address string) *net.TCPAddr) string {
	t.Helper()
	at, err := dsn.ParseMySQL(direct)
	if err != nil {
		t.Fatalf("wireproxy: %v", err)
	}
	at.Network, at.Address = "tcp", start(at.Network, at.Address).String()
	return at.String()
}

// mysqlWire is MySQL's wire protocol: packets with a three-byte length, a number and a body, in both directions. The
// first packet of a command has number 0, and the server only answers.
type mysqlWire struct{}

const comQuery = 3

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

func (mysqlWire) startup(*session, *bufio.Reader) bool { return true }

func (mysqlWire) request(in *bufio.Reader) ([]byte, bool, error) {
	p, err := readPacket(in)
	return p, len(p) > 5 && p[3] == 0 && p[4] == comQuery && isCommit(string(p[5:])), err
}

func (mysqlWire) late(commit []byte) []byte { return commit }

func (mysqlWire) answer(in *bufio.Reader, muted *atomic.Bool) ([]byte, bool, error) {
	p, err := readPacket(in)
	return p, muted.Load(), err // the answer is one packet, OK or an error
}
