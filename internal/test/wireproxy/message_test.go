package wireproxy_test

import (
	"bytes"
	"testing"

	"github.com/txonce/txonce/internal/test/wireproxy"
)

func TestIsCommit(t *testing.T) {
	for _, test := range []struct {
		name, sql string
		want      bool
	}{
		{"pgx", "commit", true},
		{"lib/pq", "COMMIT", true},
		{"semicolon", " Commit ;", true},
		{"chain", "commit and chain", true},
		{"followed", "commit; begin", true},
		{"end", "END", true},
		{"rollback", "rollback", false},
		{"mentioned", "select 'commit'", false},
		{"prefix", "commitment", false},
		{"empty", "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := wireproxy.IsCommit(test.sql); got != test.want {
				t.Errorf("IsCommit(%q) = %v", test.sql, got)
			}
		})
	}
}

// The proxy forwards what it reads unchanged, and an announced length makes it allocate no more than it receives.
func FuzzReadMessage(f *testing.F) {
	f.Add([]byte("Q\x00\x00\x00\x0bcommit\x00"))
	f.Add([]byte("P\x00\x00\x00\x08s\x00\x00\x00"))
	f.Add([]byte("E\x3f\xff\xff\xff"))
	f.Add([]byte("D\x00\x00\x00\x04C\x00\x00\x00\x04"))
	f.Fuzz(func(t *testing.T, in []byte) {
		if out := wireproxy.PassOn(in); !bytes.HasPrefix(in, out) {
			t.Fatalf("passed on %q for %q", out, in)
		}
		if out := wireproxy.PassBack(in, in); !bytes.HasPrefix(in, out) {
			t.Fatalf("passed back %q for %q", out, in)
		}
	})
}

// The proxy forwards what it reads unchanged, and an announced length makes it allocate no more than it receives.
func FuzzReadPacket(f *testing.F) {
	f.Add([]byte("\x07\x00\x00\x00\x03commit"))
	f.Add([]byte("\xff\xff\xff\x00x"))
	f.Add([]byte("\x01\x00\x00\x00\x16\x01\x00\x00\x01\x00"))
	f.Fuzz(func(t *testing.T, in []byte) {
		if out := wireproxy.PassOnPackets(in); !bytes.HasPrefix(in, out) {
			t.Fatalf("passed on %q for %q", out, in)
		}
		if out := wireproxy.PassBackPackets(in, in); !bytes.HasPrefix(in, out) {
			t.Fatalf("passed back %q for %q", out, in)
		}
	})
}

// The same for the protocols of brokers.
func FuzzBrokers(f *testing.F) {
	f.Add([]byte("AMQP\x00\x00\x09\x01\x01\x00\x01\x00\x00\x00\x04\x00\x3c\x00\x28\xce"))
	f.Add([]byte("\x01\x00\x01\x00\x00\x00\x0d\x00\x3c\x00\x50\x00\x00\x00\x00\x00\x00\x00\x01\x00\xce"))
	f.Add([]byte("\x00\x00\x00\x08\x00\x00\x00\x09\x00\x00\x00\x01"))
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, out := range wireproxy.Brokers(in) {
			if !bytes.HasPrefix(in, out) {
				t.Fatalf("passed on %q for %q", out, in)
			}
		}
	})
}
