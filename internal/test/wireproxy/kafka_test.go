package wireproxy_test

import (
	"encoding/hex"
	"testing"

	"github.com/txonce/txonce/internal/test/wireproxy"
)

// sarama and a broker have sent these requests and answers. Each ends after the last byte that the proxy reads.
func TestAProduceCanBeRefused(t *testing.T) {
	for _, tt := range []struct {
		name, request string
		want          int
	}{
		{"of version 9", "000000fc00000009000000030006736172616d610000ffff00002710", 22},
		{"without a client's ID", "000000fc0000000900000003ffff0000ffff00002710", 16},
		{"with a transaction's ID", "000000fc00000009000000030006736172616d61000474786effff00002710", 25},
		{"of another version", "000000fc00000008000000030006736172616d61ffffffff00002710", 0},
		{"another request", "000000fc0003000900000003000673617261", 0},
		{"cut off", "000000fc00000009000000030006736172616d6100", 0},
	} {
		if got := wireproxy.AcksAt(bytesOf(t, tt.request)); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
	for _, tt := range []struct {
		name, answer string
		want         bool
	}{
		{"refused", "00000030000000030002046162630200000000" + "0015" + "ffff", true},
		{"appended", "00000030000000030002046162630200000000" + "0000" + "0000", false},
		{"another error", "00000030000000030002046162630200000000" + "0006" + "ffff", false},
		{"cut off", "00000030000000030002046162630200", false},
	} {
		if got := wireproxy.Refused(bytesOf(t, tt.answer)); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func bytesOf(t *testing.T, text string) []byte {
	t.Helper()
	raw, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
