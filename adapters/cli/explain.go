package cli

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/txonce/txonce/consumer/ops"
	"github.com/txonce/txonce/dedup"
)

// explainFlags say which message is meant, and more about it.
type explainFlags struct {
	tenant, at, fingerprint string
	hash, position          string
	http                    httpFlags
	noTenant                bool // --tenant "" was given
}

func (a *app) explain() *cobra.Command {
	var f explainFlags
	args := func(cmd *cobra.Command, args []string) error {
		if f.hash != "" && f.position != "" {
			return errors.New("--hash and --position exclude each other")
		}
		if err := f.http.check(f.hash != "" || f.position != "" || f.tenant != ""); err != nil {
			return err
		}
		f.noTenant = f.tenant == "" && cmd.Flags().Changed("tenant")
		if f.hash != "" || f.position != "" {
			return cobra.MaximumNArgs(1)(cmd, args)
		}
		if len(args) != 2 {
			return fmt.Errorf("want 2 arguments, CONSUMER and KEY, and got %d", len(args))
		}
		return nil
	}
	c := a.command("explain CONSUMER KEY", "Show what has happened to one message, and what a redelivery would get", args,
		func(ctx context.Context, db *Database, out *printer, args []string) error {
			var opts ops.ExplainOptions
			if err := f.options(&opts); err != nil {
				return err
			}
			key, err := a.whichKey(ctx, db, out, f, args, &opts)
			if err != nil {
				return err
			}
			e, err := a.explainKey(ctx, db, f, key, opts)
			if err != nil {
				return err
			}
			limited, cancel := a.limit(ctx)
			defer cancel()
			sent, err := ops.ExplainOutbox(limited, db.Store.Operator(), e)
			if err != nil {
				return err
			}
			return out.object(explainJSON(out, e, sent), func() {
				if f.http.on || f.hash != "" || f.position != "" {
					out.printf("key      %s of consumer %s\n", Harmless(keyText(out, e.Key)), Harmless(key.Consumer))
				} else if e.Key.Tenant != f.tenant {
					out.printf("key      %s, tenant %s\n", Harmless(out.key(e.Key.ID)), Harmless(e.Key.Tenant))
				}
				if e.Key.Tenant == "" && isUnknown(e) && !e.HTTP {
					out.printf("tenant   none; keys of webhooks have one, such as --tenant stripe/live, and those of HTTP requests take --http\n")
				}
				if json.Valid([]byte(e.Key.ID)) && !strings.HasPrefix(e.Key.ID, `"`) && isUnknown(e) && !e.HTTP {
					out.printf("text     JSONKey stores a JSON string that reads as JSON with its quotes: ask for '\"%s\"', too\n", Harmless(out.key(e.Key.ID)))
				}
				if f.http.on && isUnknown(e) {
					out.printf("request  none with exactly these: Guard %s, principal %s, method %s, target %s, this key, and the %s of --secret-file. "+
						"Another value of one of these is another request, which may have been completed\n", Harmless(key.Consumer),
						Harmless(out.key(f.http.principal)), Harmless(strings.ToUpper(f.http.method)), Harmless(f.http.target), secretsText(len(f.http.secretFiles)))
				}
				printExplanation(out, e, sent)
			})
		})
	c.Example = `  txonce explain billing order-42:paid
  txonce explain billing --hash 1f0bc5c06c537b99        # a key that --hide-keys or Config.HideKeys has hidden; the secret is in TXONCE_KEY_SECRET
  txonce explain --position orders/3/1042               # the dead letter from there
  txonce explain payments-api 8e03978e-40d5 --http --secret-file api.key --principal acme/7 --method POST --target /payments`
	flags := c.Flags()
	flags.StringVar(&f.tenant, "tenant", "", "the tenant of the key")
	flags.StringVar(&f.hash, "hash", "", "in place of KEY: 16 digits of a hidden key, or the 32 digits of the column processed_messages.key")
	flags.StringVar(&f.position, "position", "", "in place of KEY: the position of a dead letter, such as TOPIC/PARTITION/OFFSET of Kafka")
	flags.StringVar(&f.at, "time", "", "when the message was created; without it the verdict is never unprovable")
	flags.StringVar(&f.fingerprint, "fingerprint", "",
		"the fingerprint of its content; without it the verdict is never mismatch")
	f.http.register(c)
	return c
}

func (f *explainFlags) options(opts *ops.ExplainOptions) (err error) {
	if f.at != "" {
		if opts.Time, err = parseTime("--time", f.at, time.Time{}); err != nil {
			return err
		}
	}
	if f.fingerprint != "" {
		if n, err := hex.Decode(opts.Fingerprint[:], []byte(f.fingerprint)); err != nil || n != len(opts.Fingerprint) {
			return Usage(fmt.Errorf("--fingerprint %q: want 16 hexadecimal digits", f.fingerprint))
		}
	}
	return nil
}

type explainObject struct {
	version
	Consumer string        `json:"consumer"`
	Tenant   string        `json:"tenant,omitempty"`
	Key      string        `json:"key"`
	Verdict  ops.Verdict   `json:"verdict"`
	Claim    *claimObject  `json:"claim"`
	Holder   *holderObject `json:"holder,omitempty"`
	// of in_flight: the transaction may be about another key
	Database  bool              `json:"whole_database_held,omitempty"`
	Call      *callObject       `json:"call,omitempty"` // to another system, not settled
	Letters   []letterObject    `json:"letters"`
	Discarded []discardedObject `json:"discarded,omitempty"` // letters that are gone
	Outbox    *outgoingObject   `json:"outbox"`              // null: unknown
	Response  *responseObject   `json:"response,omitempty"`  // that httpidem has stored
}

// callObject is what is recorded of a call to another system.
type callObject struct {
	Answer     ops.CallAnswer `json:"answer"`
	Unanswered int            `json:"unanswered"`
	First      *time.Time     `json:"first_try"`
	Last       *time.Time     `json:"last_try"`
}

// responseObject is what is stored for the repeats of an HTTP request.
type responseObject struct {
	Status int  `json:"status,omitempty"` // 0: it is sealed
	Bytes  int  `json:"bytes"`
	Sealed bool `json:"sealed,omitempty"`
}

type discardedObject struct {
	Letter  string     `json:"letter"`
	Action  string     `json:"action"`
	Who     string     `json:"who"`
	Reason  string     `json:"reason"`
	At      *time.Time `json:"at"`
	Claimed bool       `json:"claimed"` // it has claimed the key, which had not been processed
}

type claimObject struct {
	Claimed     *time.Time `json:"claimed"` // about; null: unknown
	Expires     *time.Time `json:"expires"`
	Fingerprint string     `json:"fingerprint,omitempty"`
}

type holderObject struct {
	PID        int64     `json:"pid"`
	Since      time.Time `json:"since"`
	AgeSeconds float64   `json:"age_seconds"`
	State      string    `json:"state,omitempty"`
	Client     string    `json:"client,omitempty"`
}

// outgoingObject has the messages whose IDs are derived from the key.
type outgoingObject struct {
	Pending   int `json:"pending"`
	Delayed   int `json:"delayed"`
	Parked    int `json:"parked"`
	Confirmed int `json:"confirmed_at_least"` // or discarded, if discards is not 0
	// where the message is whose topic is the consumer and whose ID is the key; empty: nowhere
	Itself string `json:"itself,omitempty"`
	// actions of operators since then, which may have discarded other messages
	Discards int `json:"discards"`
}

func explainJSON(out *printer, e ops.Explanation, sent ops.Outgoing) explainObject {
	o := explainObject{
		version: v1(), Consumer: e.Key.Consumer, Tenant: e.Key.Tenant, Key: out.key(e.Key.ID), Verdict: e.Verdict,
		Database: e.WholeDatabase,
		Letters:  []letterObject{},
	}
	if !e.HTTP {
		o.Outbox = (*outgoingObject)(&sent)
	}
	if c := e.Call; c != nil {
		o.Call = &callObject{c.Answer, c.Unanswered, jsonTime(c.First), jsonTime(c.Last)}
	}
	if r, ok := storedResponse(e); ok {
		o.Response = &responseObject{r.Status, r.Bytes, r.Sealed}
	}
	if !e.Claim.ExpiresAt.IsZero() {
		o.Claim = &claimObject{jsonTime(e.Claimed), jsonTime(e.Claim.ExpiresAt), fingerprintText(e.Claim.Fingerprint)}
	}
	if h := e.Holder; h != nil {
		o.Holder = &holderObject{h.PID, h.Since.UTC(), h.Age.Seconds(), h.State, h.Client}
	}
	for _, l := range e.Letters {
		o.Letters = append(o.Letters, letterJSON(out, l, false))
	}
	for _, d := range e.Discarded {
		o.Discarded = append(o.Discarded, discardedObject{
			d.Letter.String(), d.Action.String(), d.Who, d.Reason,
			jsonTime(d.At), d.Claimed,
		})
	}
	return o
}

func secretsText(n int) string {
	if n == 1 {
		return "secret"
	}
	return fmt.Sprintf("%d secrets", n)
}

func fingerprintText(f dedup.Fingerprint) string {
	if f.IsZero() {
		return ""
	}
	return hex.EncodeToString(f[:])
}
