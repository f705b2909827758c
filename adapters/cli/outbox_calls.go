package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
	"github.com/txonce/txonce/outbox"
)

// adviseOnCalls says what to do with calls whose outcome, or whose result, a person must look at.
func adviseOnCalls(out *printer, found []outbox.ParkedMessage) {
	states := map[outbox.CallState]int{}
	for i := range found {
		states[found[i].Call()]++
	}
	if n := states[outbox.CallInDoubt]; n > 0 {
		out.printf("%s in doubt: look in the other system whether it has happened (its reference is ID), then\n"+
			"  txonce outbox answer SEQ --happened [--result TEXT]   records the result, and calls nothing\n"+
			"  txonce outbox answer SEQ --not-happened               makes the call\n", counted(n, "call"))
	}
	if n := states[outbox.CallHappened]; n > 0 {
		out.printf("%s did happen, but recording the result failed: mend the cause, then txonce outbox unpark SEQ; no call is made again\n", count(n, "call"))
	}
}

// callAnswerer is an ops.Store that keeps answers about calls.
type callAnswerer interface {
	AnswerCall(ctx context.Context, key dedup.Key, f dedup.Fingerprint, happened bool, result []byte) error
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
		}
		calls, ok := db.Store.Operator().(callAnswerer)
		if !ok {
			return refused("this store keeps no answers about calls")
		}
		warning, note := "The call would be made again.", "has not happened"
		if happened {
			warning, note = "The result would be recorded, and no call made.", "has happened"
		}
		if goOn, err := act.agree(ctx, out, 1, warning, fmt.Sprint(m.Seq)); !goOn {
			return err
		}
		limited, cancel := a.limit(ctx)
		defer cancel()
		key := dedup.Key{Consumer: m.Topic, ID: m.ID} // as calls.KeyOf
		if err := calls.AnswerCall(limited, key, dedup.FingerprintOf(m.Payload), happened, []byte(result)); err != nil {
			return err
		}
		return a.change(ctx, db, out, ops.Request{
			Kind: ops.Unpark, Who: act.who, Reason: act.reason, Note: fmt.Sprintf("message %d: the call %s", m.Seq, note),
			Expect: -1,
		}, seqs)
	})
	act.add(c)
	c.Flags().BoolVar(&happened, "happened", false, "the other system has made the call")
	c.Flags().BoolVar(&absent, "not-happened", false, "the other system has not made the call, and will not")
	c.Flags().StringVar(&result, "result", "", "with --happened: what Config.Done gets, in the form that Do returns")
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
