package kafka

import (
	"encoding/json"
	"strings"
	"time"
)

// mark is the metadata of the offsets that a Subscriber commits for a consumer whose database remembers positions. An
// offset without it was committed by somebody else: another program, or an operator.
type mark struct {
	Consumer string `json:"txonce"`        // whose database has the position
	Log      string `json:"log,omitempty"` // the topic ID; empty: the cluster has none
	Skips    []skip `json:"skips,omitempty"`
}

// skip says that somebody else has moved the group's offset forward, over messages that nobody may have handled.
type skip struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
	At   int64 `json:"at"` // when the Subscriber found it, in Unix seconds
}

// skipsMost is how many skips a mark keeps, the latest ones: brokers limit the metadata of an offset to 4096 bytes.
const skipsMost = 16

func (m mark) String() string {
	text, _ := json.Marshal(m) // never fails
	return string(text)
}

// markOf returns the mark in metadata, or nil if there is none of consumer.
func markOf(metadata, consumer string) *mark {
	var m mark
	if !strings.HasPrefix(metadata, `{"txonce":`) || json.Unmarshal([]byte(metadata), &m) != nil ||
		m.Consumer != consumer {
		return nil
	}
	return &m
}

// skipsIn returns the skips between two offsets.
func (m mark) skipsIn(from, to int64) (within []skip) {
	for _, s := range m.Skips {
		if from < s.To && s.From < to {
			within = append(within, s)
		}
	}
	return within
}

// skipped returns m with one more skip.
func (m mark) skipped(from, to int64, at time.Time) mark {
	m.Skips = append(m.Skips[:len(m.Skips):len(m.Skips)], skip{from, to, at.Unix()})
	m.Skips = m.Skips[max(0, len(m.Skips)-skipsMost):]
	return m
}
