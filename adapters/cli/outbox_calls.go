package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/dedup/driver"
	"github.com/txonce/txonce/outbox"
)

// adviseOnCalls says what to do with calls whose outcome, or whose result, a person must look at.
func adviseOnCalls(out *printer, found []outbox.ParkedMessage) {
	states := map[outbox.CallState]int{}
	for i := range found {
		states[found[i].Call()]++
	}
	if n := states[outbox.CallInDoubt]; n > 0 {
		out.printf("%s in doubt. With Config.Find, or while the other system remembers the idempotency key, txonce finds out by itself:\n"+
			"  txonce outbox unpark SEQ --reason TEXT\n"+
			"Otherwise look in the other system (the call's reference is ID), and say what you have found:\n"+
			"  txonce outbox answer SEQ --happened --result RESULT --reason TEXT   Done records RESULT, which has the form that Do returns; nothing is called\n"+
			"  txonce outbox answer SEQ --not-happened --reason TEXT               the call is made; only after the time in the error (outbox show SEQ), because a request may be under way until then\n",
			counted(n, "call"))
	}
	if n := states[outbox.CallHappened]; n > 0 {
		out.printf("%s did happen, but Done failed. Mend the cause, then:\n"+
			"  txonce outbox unpark SEQ --reason TEXT                              Done runs again; nothing is called\n"+
			"  txonce outbox answer SEQ --happened --result RESULT --reason TEXT   Done gets another RESULT\n", count(n, "call"))
	}
}

// callAnswerer is an ops.Store that keeps answers about calls.
type callAnswerer interface {
	Call(ctx context.Context, key dedup.Key) (driver.Call, error)
	AnswerCall(ctx context.Context, key dedup.Key, seen int64, a driver.Answer) (recorded bool, err error)
}

// answerCall returns the command by which a person says whether a call has happened.
func (a *app) answerCall() *cobra.Command {
	var act actFlags
	var happened, absent bool
	var result string
	c := a.command("answer SEQ", "Say whether a call in doubt has happened, and unpark it", cobra.ExactArgs(1), func(ctx context.Context, db *Database, out *printer, args []string) error {
		seqs, err := parseSeqs(args)
		switch {
		case err != nil:
			return err
		case happened == absent:
			return Usage(errors.New("say either --happened or --not-happened"))
		case absent && result != "":
			return Usage(errors.New("a call that has not happened has no --result"))
		}
		if err := act.check(); err != nil {
			return err
		}
		m, ok, err := a.parked(ctx, db, seqs[0])
		switch {
		case err != nil:
			return err
		case !ok:
			return refused("there is no parked message %d: it was unparked or discarded, or never existed", seqs[0])
		case m.Call() == outbox.NoCall:
			return refused("message %d is no call in doubt: see txonce outbox show %d", m.Seq, m.Seq)
		case m.Call() == outbox.CallHappened && result == "": // the result is kept, and an answer would replace it
			return refused("the call of message %d is known to have happened: mend why its result is not recorded, then txonce outbox unpark %d. With --happened --result TEXT, Done gets another result", m.Seq, m.Seq)
		}
		calls, ok := db.Store.Operator().(callAnswerer)
		if !ok {
			return refused("this store keeps no answers about calls")
		}
		key := dedup.Key{Consumer: m.Topic, ID: m.ID} // as calls.KeyOf
		limited, cancel := a.limit(ctx)
		seen, err := calls.Call(limited, key) // before the question: others may answer meanwhile, or unpark the message
		cancel()
		if err != nil {
			return err
		}
		warning, note := "The call would be made again.", "has not happened"
		if happened {
			warning, note = "The result would be recorded, and no call made.", "has happened"
		}
		if goOn, err := act.agree(ctx, out, 1, warning, fmt.Sprint(m.Seq)); !goOn {
			return err
		}
		limited, cancel = a.limit(ctx)
		defer cancel()
		recorded, err := calls.AnswerCall(limited, key, seen.Token, driver.Answer{
			Happened: happened, Result: []byte(result), Fingerprint: dedup.FingerprintOf(m.Payload),
		})
		switch {
		case err != nil:
			return err
		case !recorded:
			return refused("somebody has answered for message %d meanwhile, or a relay has tried the call: look again", m.Seq)
		}
		return a.change(ctx, db, out, ops.Request{
			Kind: ops.Answer, Who: act.who, Reason: act.reason, Note: fmt.Sprintf("message %d: the call %s", m.Seq, note),
			Expect: -1,
		}, seqs)
	})
	c.Long = `Say whether a call in doubt has happened, and unpark it.

Look in the other system first. Its requests may arrive late: the answer --not-happened is safe only after the time that
the error of the call names ("may be under way until ..."; txonce outbox show SEQ). That is Config.Settles, a minute by
default, after the end of the latest try. An earlier answer may let the call happen twice.

With --happened, Config.Done gets --result in place of what Do would have returned, so it must have the same form: the
JSON of the other system's response, for example. Without --result, Done gets an empty result.`
	act.add(c)
	c.Flags().BoolVar(&happened, "happened", false, "the other system has made the call")
	c.Flags().BoolVar(&absent, "not-happened", false, "the other system has not made the call, and no request for it is under way any more")
	c.Flags().StringVar(&result, "result", "", "with --happened: what Config.Done gets, in the form that Do returns; empty only if Done reads nothing from it")
	return c
}

// callsAmong counts the messages that are calls which may have happened, or have.
func (a *app) callsAmong(ctx context.Context, db *Database, seqs []int64) (n int, err error) {
	for _, seq := range seqs {
		m, ok, err := a.parked(ctx, db, seq)
		if err != nil {
			return 0, err
		}
		if ok && m.Call() != outbox.NoCall {
			n++
		}
	}
	return n, nil
}
