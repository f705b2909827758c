//go:build unix

package main

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"
)

// faultlessRun returns a ledger of 3 keys with 4 messages each, and the topic of a faultless run.
func faultlessRun() (ledger []entry, topic []*publication) {
	seq := int64(100)
	for key := range 3 {
		for n := range int64(4) {
			id := fmt.Sprintf("id-%d-%d", key, n+1)
			payload := []byte(execution(int64(10*key)+n) + " and more")
			ledger = append(ledger, entry{id: id, key: key, n: n + 1, payload: payload})
			seq += 7
			topic = append(topic, &publication{
				partition: int32(key % 2), offset: seq, id: id, seq: seq, key: keyName(key), payload: payload,
				headers: map[string]string{headerDigest: digest(payload)},
			})
		}
	}
	return ledger, topic
}

// TestRelayAudit plants each fault that the audit must find.
func TestRelayAudit(t *testing.T) {
	again := func(p *publication, change func(*publication)) *publication {
		q := *p
		q.offset += 1000
		q.headers = maps.Clone(p.headers)
		change(&q)
		return &q
	}
	same := func(*publication) {}
	for _, test := range []struct {
		name string
		harm func(topic []*publication) []*publication
		want findings
	}{
		{"nothing is wrong", func(topic []*publication) []*publication { return topic }, findings{}},
		{"keys are mixed", func(topic []*publication) []*publication {
			return append(topic[4:8:8], slices.Concat(topic[:4], topic[8:])...)
		}, findings{}},
		{"a late repeat", func(topic []*publication) []*publication {
			return append(topic, again(topic[0], same), again(topic[0], same), again(topic[5], same))
		}, findings{Repeats: 3}},
		{
			"one is missing", func(topic []*publication) []*publication { return slices.Delete(topic, 1, 2) },
			findings{Missing: 1},
		},
		{
			"the last of a key is missing", func(topic []*publication) []*publication { return topic[:11] },
			findings{Missing: 1},
		},
		{"nothing was published", func([]*publication) []*publication { return nil }, findings{Missing: 12}},
		{"nobody enqueued it", func(topic []*publication) []*publication {
			return append(topic, again(topic[3], func(p *publication) { p.id = "id-0-5" }))
		}, findings{Phantom: 1}},
		{"it has no ID", func(topic []*publication) []*publication {
			topic[11] = again(topic[11], func(p *publication) { p.id = "" })
			return topic
		}, findings{Phantom: 1, Missing: 1}},
		{"an execution that was rolled back enqueued it", func(topic []*publication) []*publication {
			return append(topic, again(topic[3], func(p *publication) { p.payload = []byte(execution(77) + " and more") }))
		}, findings{Phantom: 1}},
		{"two change places", func(topic []*publication) []*publication {
			topic[1], topic[2] = topic[2], topic[1]
			return topic
		}, findings{OutOfOrder: 1}},
		{"the last comes first", func(topic []*publication) []*publication {
			return slices.Concat(topic[3:4], topic[:3], topic[4:])
		}, findings{OutOfOrder: 3}},
		{"on another partition", func(topic []*publication) []*publication {
			topic[3].partition = 5
			return topic
		}, findings{OutOfOrder: 1}},
		{"another payload", func(topic []*publication) []*publication {
			topic[3].payload = append(slices.Clone(topic[3].payload), 'x')
			return topic
		}, findings{Altered: 1, Missing: 1}},
		{"another header", func(topic []*publication) []*publication {
			topic[3].headers[headerDigest] = "?"
			return topic
		}, findings{Altered: 1, Missing: 1}},
		{"one header more", func(topic []*publication) []*publication {
			topic[3].headers["x"] = "?"
			return topic
		}, findings{Altered: 1, Missing: 1}},
		{"another key", func(topic []*publication) []*publication {
			topic[3].key = keyName(2)
			return topic
		}, findings{Altered: 1, Missing: 1}},
		{"a repeat with another sequence number", func(topic []*publication) []*publication {
			return append(topic, again(topic[3], func(p *publication) { p.seq++ }))
		}, findings{Altered: 1, Repeats: 1}},
		{"without a sequence number", func(topic []*publication) []*publication {
			topic[3].seq = -1
			return topic
		}, findings{Altered: 1}},
		{"sequence numbers against the order", func(topic []*publication) []*publication {
			topic[0].seq, topic[1].seq = topic[1].seq, topic[0].seq
			return topic
		}, findings{Altered: 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			ledger, topic := faultlessRun()
			topic = test.harm(topic)
			a := newAudit(ledger)
			for _, p := range topic {
				a.publication(p)
			}
			got, want := a.close(), test.want
			want.Committed, want.Publications = 12, len(topic)
			if harmless := want.Missing+want.Phantom+want.OutOfOrder+want.Altered == 0; harmless != (len(got.Problems) == 0) {
				t.Errorf("problems: %q", got.Problems)
			}
			got.Problems, got.problems = nil, 0
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

// TestRelayVerdict fails a run for each kind of fault.
func TestRelayVerdict(t *testing.T) {
	o := options{messages: 500, kills: 20, pauses: 20, batch: 10}
	allowed := 40 * 10 * workers
	for _, test := range []struct {
		name string
		harm func(f *findings, faults *tally, pending *int64)
		ok   bool
	}{
		{"nothing is wrong", func(*findings, *tally, *int64) {}, true},
		{"more faults than asked", func(_ *findings, faults *tally, _ *int64) { faults.kills++ }, true},
		{"as many repeats as allowed", func(f *findings, _ *tally, _ *int64) { f.Repeats = allowed }, true},
		{"a repeat too many", func(f *findings, _ *tally, _ *int64) { f.Repeats = allowed + 1 }, false},
		{"missing", func(f *findings, _ *tally, _ *int64) { f.Missing = 1 }, false},
		{"phantom", func(f *findings, _ *tally, _ *int64) { f.Phantom = 1 }, false},
		{"out of order", func(f *findings, _ *tally, _ *int64) { f.OutOfOrder = 1 }, false},
		{"altered", func(f *findings, _ *tally, _ *int64) { f.Altered = 1 }, false},
		{"pending", func(_ *findings, _ *tally, pending *int64) { *pending = 1 }, false},
		{"a kill too few", func(_ *findings, faults *tally, _ *int64) { faults.kills-- }, false},
		{"a pause too few", func(_ *findings, faults *tally, _ *int64) { faults.pauses-- }, false},
		{"fewer messages than asked", func(f *findings, _ *tally, _ *int64) { f.Committed-- }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, faults, pending := findings{Committed: 500, Publications: 500}, tally{kills: 20, pauses: 20}, int64(0)
			test.harm(&f, &faults, &pending)
			if x := newFigures(o, &plan{}, f, faults, 0, pending, time.Second); x.OK != test.ok {
				t.Errorf("ok %v:\n%s%s", x.OK, x.table(), x.line())
			}
		})
	}
}
