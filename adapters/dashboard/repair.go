package dashboard

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/txonce/txonce/consumer"
	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/observe"
)

// maxRepair is how many bytes a payload may have that a form repairs. With maxForm, a form has room for it in each
// encoding. The command line takes up to ops.MaxRepair.
const maxRepair = 48_000

// tooLong returns an error if a form cannot repair payload.
func tooLong(payload []byte) error {
	if len(payload) <= maxRepair {
		return nil
	}
	return fmt.Errorf("the payload has %s bytes, more than %s: use txonce dead-letters replay --repair FILE",
		number(len(payload)), number(maxRepair))
}

// repairPage is a dead letter whose payload is edited, and then the difference that a repair would make.
type repairPage struct {
	Letter  consumer.DeadLetter
	Text    string // the payload, as the form has it
	Encoded bool   // Text is base64, because a form would change the payload
	Limit   int    // bytes

	// Of the comparison.
	Diff      []diffLine
	Was, Size int    // bytes of the letter's payload and of the new one
	Broken    bool   // the letter's payload is JSON and the new one is not
	Payload   string // the new payload as base64
	Sum       string // the SHA-256 of the letter's payload: a repair of another one is refused
	Plan      ops.ReplayPlan
	Refused   []observe.Cause
}

// withPayload lets those pass who may see payloads and act.
func (d *Dashboard) withPayload(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for _, p := range []Permission{Act, Payload} {
			if _, err := d.cfg.Authorize(r, p); err != nil {
				d.cfg.Logger.WarnContext(r.Context(), "dashboard: a repair was refused", "path", r.URL.Path, "peer",
					r.RemoteAddr, "err", err)
				d.fail(w, r, http.StatusForbidden, err)
				return
			}
		}
		next(w, r)
	}
}

// editRepair shows a form with the payload of a letter.
func (d *Dashboard) editRepair(w http.ResponseWriter, r *http.Request) {
	letter, err := d.findLetter(r)
	if err != nil {
		d.notFound(w, r, err)
		return
	}
	payload := letter.Message.Payload
	if err := tooLong(payload); err != nil {
		d.fail(w, r, http.StatusBadRequest, err)
		return
	}
	p := repairPage{Letter: letter, Limit: maxRepair, Encoded: newlineOf(payload) == ""}
	if p.Text = string(payload); p.Encoded {
		p.Text = base64.StdEncoding.EncodeToString(payload)
	}
	d.show(w, r, http.StatusOK, "repair", "Dead letters", page{Title: "Repair", Body: p})
}

// newlineOf returns the end of a payload's lines. A form sends all as CRLF, so one with several is edited as base64, as
// is one that is not text: then it returns "".
func newlineOf(payload []byte) string {
	plain := bytes.ReplaceAll(payload, []byte("\r\n"), nil)
	switch crlf := len(plain) < len(payload); {
	case !utf8.Valid(payload) || bytes.ContainsFunc(payload, unprintable) || bytes.ContainsRune(plain, '\r') ||
		crlf && bytes.ContainsRune(plain, '\n'):
		return ""
	case crlf:
		return "\r\n"
	}
	return "\n"
}

// compareRepair shows the difference that a repair would make, and what a worker would do with it.
func (d *Dashboard) compareRepair(w http.ResponseWriter, r *http.Request) {
	letter, err := d.findLetter(r)
	if err != nil {
		d.notFound(w, r, err)
		return
	}
	payload, err := edited(r, letter.Message.Payload)
	if err == nil && bytes.Equal(payload, letter.Message.Payload) {
		err = errors.New("the payload is not changed: request a replay on the page of the letter")
	}
	if err == nil {
		err = tooLong(payload)
	}
	q := repairOf(letter, payload, "plan", "plan")
	if err == nil {
		err = q.Validate()
	}
	if err != nil {
		d.fail(w, r, http.StatusBadRequest, err)
		return
	}
	p := repairPage{
		Letter: letter, Was: len(letter.Message.Payload), Size: len(payload),
		Payload: base64.StdEncoding.EncodeToString(payload), Sum: sum(letter.Message.Payload),
		Broken: json.Valid(letter.Message.Payload) && !json.Valid(payload), Diff: difference(letter.Message.Payload,
			payload),
	}
	if p.Plan, err = ops.PlanReplay(r.Context(), d.cfg.Store, q, 0); err != nil {
		d.failed(w, r, err)
		return
	}
	p.Refused = slices.Sorted(maps.Keys(p.Plan.Refused))
	d.show(w, r, http.StatusOK, "repaired", "Dead letters", page{Title: "Repair", Body: p})
}

// edited reads the payload of a form that editRepair has made.
func edited(r *http.Request, original []byte) ([]byte, error) {
	text := r.PostFormValue("payload")
	newline := newlineOf(original)
	if newline == "" {
		payload, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
		if err != nil {
			return nil, fmt.Errorf("the payload is not base64: %w", err)
		}
		return payload, nil
	}
	return []byte(strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\n", newline)), nil
}

// difference compares payloads as pages show them, or their bytes if only the layout differs.
func difference(from, to []byte) []diffLine {
	a, _ := readable(from, maxPayload)
	b, _ := readable(to, maxPayload)
	if a == b {
		a, b = hex.Dump(from), hex.Dump(to)
	}
	return diff(a, b)
}

func sum(payload []byte) string {
	digest := sha256.Sum256(payload)
	return hex.EncodeToString(digest[:])
}

func repairOf(l consumer.DeadLetter, payload []byte, who, why string) ops.Request {
	return ops.Request{
		Kind: ops.Repair, Who: who, Reason: why, Payload: payload, Expect: 1,
		Filter: consumer.DeadLetterFilter{Consumer: l.Record.Key.Consumer, ID: l.ID},
	}
}

// repair requests the repair that compareRepair has shown.
func (d *Dashboard) repair(ctx context.Context, r *http.Request, who string) (ops.Action, error) {
	letter, err := d.findLetter(r)
	if errors.Is(err, errNoLetter) {
		err = fmt.Errorf("%w: %w", errStale, err)
	}
	if err != nil {
		return ops.Action{}, err
	}
	if r.PostFormValue("sum") != sum(letter.Message.Payload) {
		return ops.Action{}, fmt.Errorf("%w: the letter has another payload than the one that was compared", errStale)
	}
	payload, err := base64.StdEncoding.DecodeString(r.PostFormValue("payload"))
	if err != nil {
		return ops.Action{}, errBadForm{fmt.Errorf("the payload is not base64: %w", err)}
	}
	q := repairOf(letter, payload, who, strings.TrimSpace(r.PostFormValue("why")))
	q.Key, q.AsNew = r.PostFormValue("new_key"), r.PostFormValue("as_new") != ""
	if err := q.Validate(); err != nil {
		return ops.Action{}, errBadForm{err}
	}
	return d.cfg.Store.Request(ctx, q)
}
