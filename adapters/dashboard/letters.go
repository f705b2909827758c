package dashboard

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/observe"
)

const (
	lettersShown = 50     // how many letters a page lists
	maxSearched  = 10_000 // how many letters a page reads to find them
)

type letterList struct {
	Choice    choice
	Causes    []observe.Cause
	Consumers []string
	Letters   []consumer.DeadLetter
	Next      string    // query of the next page; empty: this is the last
	Searched  time.Time // the page has all that match since then, and not yet those before; zero: nothing was left out
}

// letters lists dead letters.
func (d *Dashboard) letters(w http.ResponseWriter, r *http.Request) {
	list := letterList{Choice: choiceOf(r), Causes: ops.Causes()}
	filter, err := list.Choice.filter()
	if err == nil {
		filter.After, err = parseCursor(r.FormValue("after"))
	}
	if err != nil {
		d.fail(w, r, http.StatusBadRequest, err)
		return
	}
	since, err := d.cfg.Store.Keys().Reach(r.Context(), filter, maxSearched)
	if since.After(filter.Since) {
		filter.Since, list.Searched = since, since
	}
	filter.Limit = lettersShown + 1
	if err == nil {
		list.Letters, err = d.cfg.Store.DeadLetters(r.Context(), filter)
	}
	if err != nil {
		d.failed(w, r, err)
		return
	}
	switch {
	case len(list.Letters) > lettersShown:
		list.Letters, list.Searched = list.Letters[:lettersShown], time.Time{}
		list.Next = list.Choice.Query("after", cursorText(list.Letters[lettersShown-1].Cursor()))
	case !list.Searched.IsZero():
		list.Next = list.Choice.Query("after", cursorText(consumer.DeadLetterCursor{First: list.Searched}))
	}
	list.Consumers = d.names(r)
	d.show(w, r, http.StatusOK, "letters", "Dead letters", page{Title: "Dead letters", Body: list})
}

// names are the consumers for the fields of forms.
func (d *Dashboard) names(r *http.Request) (names []string) {
	consumers, err := d.cfg.Store.Keys().Consumers(r.Context())
	if err != nil {
		return nil
	}
	for _, c := range consumers {
		names = append(names, c.Name)
	}
	return names
}

// letterPage is one dead letter, with the verdict that a redelivery would get.
type letterPage struct {
	Letter      consumer.DeadLetter
	Headers     []string
	Payload     string // empty without the permission
	Form        string
	Size        int
	Shortened   string       // what the letter lacks; empty: nothing
	Explanation *explanation // nil: it has no usable key
	Suggested   string       // another key, for a mismatch
	Other       *consumer.DeadLetter
	Diff        []diffLine
}

func (d *Dashboard) letter(w http.ResponseWriter, r *http.Request) {
	letter, err := d.findLetter(r)
	if err != nil {
		d.notFound(w, r, err)
		return
	}
	p := letterPage{
		Letter: letter, Headers: slices.Sorted(maps.Keys(letter.Message.Headers)),
		Size: len(letter.Message.Payload),
	}
	if s, ok := letter.Shortened(); ok {
		p.Shortened = s.String() + "."
	}
	if letter.Record.Key.ID != "" {
		if p.Explanation, err = d.explainRecord(r.Context(), letter.Record); err != nil {
			d.failed(w, r, err)
			return
		}
		if p.Explanation.Verdict == ops.Mismatch && len(d.cfg.HideKeys.Secret) == 0 {
			p.Suggested = letter.Record.Key.ID + "#2"
		}
	}
	if d.may(r, Payload) {
		p.Payload, p.Form = readable(letter.Message.Payload, maxPayload)
		p.compare()
	}
	d.show(w, r, http.StatusOK, "letter", "Dead letters", page{Title: "Dead letter", Body: p})
}

// compare finds another letter of the same key with other content.
func (p *letterPage) compare() {
	if p.Explanation == nil {
		return
	}
	for _, other := range p.Explanation.Letters {
		if other.ID != p.Letter.ID && !bytes.Equal(other.Message.Payload, p.Letter.Message.Payload) {
			text, _ := readable(other.Message.Payload, maxPayload)
			p.Other, p.Diff = &other, diff(text, p.Payload)
			return
		}
	}
}

var errNoLetter = errors.New("there is no dead letter with this id: it was replayed or discarded, or never existed")

func (d *Dashboard) findLetter(r *http.Request) (letter consumer.DeadLetter, err error) {
	id, err := consumer.ParseDeadLetterID(r.FormValue("id"))
	if err != nil {
		return letter, fmt.Errorf("%w: %w", errNoLetter, err)
	}
	found, err := d.cfg.Store.DeadLetters(r.Context(), consumer.DeadLetterFilter{ID: id})
	if err == nil && len(found) == 0 {
		err = errNoLetter
	}
	if err != nil {
		return letter, err
	}
	return found[0], nil
}

func (d *Dashboard) notFound(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, errNoLetter) {
		d.fail(w, r, http.StatusNotFound, err)
		return
	}
	d.failed(w, r, err)
}
