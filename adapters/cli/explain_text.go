package cli

import (
	"fmt"

	"github.com/txonce/txonce/consumer/ops"
)

func printExplanation(out *printer, e ops.Explanation, sent ops.Outgoing) {
	if e.Claim.ExpiresAt.IsZero() {
		out.printf("claim    none\n")
	} else {
		claimed := ""
		if !e.Claimed.IsZero() {
			claimed = " about " + instant(e.Claimed)
		}
		out.printf("claim    committed%s, expires %s", claimed, instant(e.Claim.ExpiresAt))
		if f := fingerprintText(e.Claim.Fingerprint); f != "" {
			out.printf(", fingerprint %s", f)
		}
		out.printf("\n")
	}
	switch r, ok := storedResponse(e); {
	case ok && r.Sealed:
		out.printf("response stored for repeats, sealed, %d bytes\n", r.Bytes)
	case ok:
		out.printf("response %d, stored for repeats, %d bytes with its headers\n", r.Status, r.Bytes)
	case e.HTTP && !e.Claim.ExpiresAt.IsZero():
		out.printf("response not readable; a repeat gets 409\n")
	}
	if c := e.Call; c != nil {
		out.printf("call     %s\n", callText(c))
	}
	if h := e.Holder; h != nil {
		out.printf("holder   pid %d, for %s, %s %s\n", h.PID, ago(h.Age), Harmless(h.State), Harmless(h.Client))
	}
	switch {
	case len(e.Letters) > 0 || e.HTTP: // HTTP requests are never parked
	case e.Claim.ExpiresAt.IsZero():
		out.printf("letters  none with this key; a message that was parked without a usable key (no_key) is found by --position only\n")
	default:
		out.printf("letters  none\n")
	}
	for i, l := range e.Letters {
		head := "letters"
		if i > 0 {
			head = ""
		}
		out.printf("%-8s %s: %s, parked %s, %s", head, l.ID, l.Cause, instant(l.First), Harmless(out.position(&l)))
		if f := fingerprintText(l.Record.Fingerprint); f != "" {
			out.printf(", fingerprint %s", f)
		}
		if l.Settled {
			out.printf(", processed since")
		}
		out.printf("\n")
	}
	for i, d := range e.Discarded {
		head := "discards"
		if i > 0 {
			head = ""
		}
		out.printf("%-8s %s: by %s, %s, action %s: %s\n", head, d.Letter, Harmless(d.Who), instant(d.At), d.Action,
			Harmless(d.Reason))
	}
	out.printf("outbox   %s\n", sent.Describe(e))
	if sent.Itself != "" {
		out.printf("message  %s in the outbox: its topic is %s, and its ID is the key\n", sent.Itself, Harmless(e.Key.Consumer))
	}
	out.printf("verdict  %s\n", verdictText(e, sent))
}

// callText says what is recorded of a call.
func callText(c *ops.OpenCall) string {
	switch {
	case c.Answer == ops.CallHappened:
		return "it has happened, and its result is known, but not recorded by Done yet"
	case c.Answer == ops.CallNotHappened:
		return "no try has had an effect"
	case c.Unanswered == 0:
		return "no try is unanswered"
	}
	return fmt.Sprintf("tries without an answer: %d; the first began at %s, the latest at %s", c.Unanswered, instant(c.First),
		instant(c.Last))
}

// openText is the verdict about a call that is not settled.
func openText(e ops.Explanation) string {
	list := "; see txonce outbox list --topic " + Harmless(e.Key.Consumer)
	switch {
	case e.Call.Answer == ops.CallHappened:
		return "open call: it has happened; a relay runs Done with the result, and does not call again" + list
	case e.Call.Answer == ops.CallNotHappened || e.Call.Unanswered == 0:
		return "open call: it has not happened; a relay makes it" + list
	}
	return "open call: it may have happened; a relay finds that out, or it is parked in doubt for you" + list
}

func verdictText(e ops.Explanation, sent ops.Outgoing) string {
	switch {
	case e.Verdict == ops.Open:
		return openText(e)
	case e.HTTP && e.Verdict == ops.First:
		return "first: no request with this hash was completed within the window; if the client's request has this hash, a repeat would run"
	case e.HTTP && e.Verdict == ops.Duplicate:
		return "duplicate: the request was completed; a repeat gets the stored response, or 422 if its content differs"
	case e.HTTP && e.Verdict == ops.Unprovable:
		return "unprovable: its claim may have been forgotten; with Config.KeyTime a repeat gets 409"
	}
	switch e.Verdict {
	case ops.First:
		if sent.Itself != "" {
			return "first: it was not processed within the window, and its message is still in the outbox: a relay publishes it, or makes the call, unless it is parked"
		}
		if len(e.Letters) > 0 {
			return "first: it was not processed within the window; replay the letter, or wait for a redelivery"
		}
		return "first: it was not processed within the window under exactly this key; a redelivery with this key would run"
	case ops.Duplicate:
		for _, l := range e.Letters {
			switch {
			case l.Settled:
			case !e.Claim.Fingerprint.Matches(l.Record.Fingerprint):
				return "duplicate for the content that was processed; mismatch for the content of the letter, which would be parked again: dead-letters show"
			default:
				return "duplicate: a redelivery would not run; the outcome of a letter is unknown: dead-letters show"
			}
		}
		if d, ok := e.ClaimedByDiscard(); ok {
			return fmt.Sprintf("duplicate: it was discarded by %s, not processed; a redelivery would not run",
				Harmless(d.Who))
		}
		return "duplicate: it was processed; a redelivery would not run"
	case ops.Mismatch:
		return "mismatch: the key was processed with other content; a redelivery would be parked"
	case ops.KnownContent:
		return "known content: the key is free, but another message has claimed an alias of a letter; a redelivery would be parked"
	case ops.InFlight:
		if e.WholeDatabase {
			return "in flight: a transaction writes to the database, for this key or for another one; ask again when it has ended"
		}
		return "in flight: a transaction is processing it now; ask again when it has ended"
	default:
		if len(e.Letters) > 0 {
			return "unprovable: its claim may have been forgotten; a redelivery would be parked; if its effects are missing, replay the letter --as-new"
		}
		return "unprovable: its claim may have been forgotten; a redelivery would be parked"
	}
}
