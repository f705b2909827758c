package dashboard_test

import (
	"strings"
	"testing"

	"github.com/txonce/txonce/adapters/dashboard"
	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/internal/test/system/dashboardtest"
)

// park makes a dead letter of a message with this payload, and returns it.
func park(t *testing.T, db *dashboardtest.DB, id string, payload []byte) consumer.DeadLetter {
	t.Helper()
	db.Broken.Store(true)
	m := dashboardtest.Message(id)
	m.Payload = payload
	c := db.Consumer(t, "billing")
	defer c.Close()
	if err := c.Process(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	for _, l := range letters(t, db, consumer.DeadLetterFilter{MessageID: id}) {
		if string(l.Message.Payload) == string(payload) {
			return l
		}
	}
	t.Fatal("there is no letter")
	return consumer.DeadLetter{}
}

// A message that somebody sends must not use up the memory of the process that shows it: each level of JSON is indented
// further.
func TestDeepJSON(t *testing.T) {
	t.Parallel()
	db := dashboardtest.SQLite(t)
	s := newSite(t, dashboard.Config{Store: db.Operator()})
	l := park(t, db, "deep", []byte(strings.Repeat("[", 9000)+strings.Repeat("]", 9000)))
	if body := s.want("letter?id="+l.ID.String(), 200, "18,000 bytes, text", "[[[[[["); len(body) > 1<<20 {
		t.Errorf("a payload of 18,000 bytes makes a page of %d bytes", len(body))
	}
}

// A payload is shown as it is, or as bytes: a byte that is left out may be the fault.
func TestInvalidText(t *testing.T) {
	t.Parallel()
	db := dashboardtest.SQLite(t)
	s := newSite(t, dashboard.Config{Store: db.Operator()})
	for payload, form := range map[string]string{
		"amount=12\xff50":                     "12 bytes, bytes",
		"{\"amount\":\"12\xff50\"}":           "18 bytes, bytes",
		"amount=1250 €":                       "15 bytes, text",
		strings.Repeat("x", 64<<10-1) + "€€€": "65,544 bytes, text",
	} {
		l := park(t, db, "text", []byte(payload))
		s.want("letter?id="+l.ID.String(), 200, form)
	}
}

// Two payloads that differ where nothing is compared must not look equal.
func TestLongDiff(t *testing.T) {
	t.Parallel()
	db := dashboardtest.SQLite(t)
	s := newSite(t, dashboard.Config{Store: db.Operator()})
	long := strings.Repeat("line\n", 1500)
	park(t, db, "long", []byte(long+"10 EUR"))
	l := park(t, db, "long", []byte(long+"20 EUR"))
	s.want("letter?id="+l.ID.String(), 200, "only the first 1,000 lines are compared")
	short := park(t, db, "short", []byte("10 EUR"))
	park(t, db, "short", []byte("20 EUR"))
	if body := s.want("letter?id="+short.ID.String(), 200, "Beside the other letter"); strings.Contains(body,
		"are compared") {
		t.Error("a short difference is cut")
	}
}

// A field that cannot be read must not be taken for an empty one, which chooses everything.
func TestMalformedFields(t *testing.T) {
	t.Parallel()
	db := dashboardtest.SQLite(t)
	db.Seed(t)
	s := newSite(t, dashboard.Config{Store: db.Operator()})
	for _, path := range []string{
		"letters?topic=%zz", "plan?consumer=billing&topic=%zz", "outbox?topic=%zz",
		"letters?a;topic=x", "letters?topic=%ff", "explain?consumer=billing&key=a%00",
	} {
		s.want(path, 400)
	}
}
