package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
)

// actFlags are the flags of commands that change something.
type actFlags struct {
	reason, who string
	yes, dry    bool
	expect      int
}

func (f *actFlags) add(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.reason, "reason", "", "why; it is recorded (required)")
	flags.BoolVar(&f.yes, "yes", false, "do not ask; needs --expect")
	flags.IntVar(&f.expect, "expect", -1, "change nothing unless exactly this number matches")
	flags.Lookup("expect").DefValue = "0" // help does not show it
	flags.BoolVar(&f.dry, "dry-run", false, "count, and change nothing")
	addWho(c, &f.who)
}

func addWho(c *cobra.Command, who *string) {
	c.Flags().StringVar(who, "who", whoami(), "who acts; it is recorded")
	c.Flags().Lookup("who").DefValue = "user@host"
}

func (f *actFlags) check() error {
	switch {
	case f.dry:
		return nil
	case f.reason == "":
		return Usage(fmt.Errorf("--reason is required: the next operator will want to know why"))
	case f.yes && f.expect < 0:
		return Usage(fmt.Errorf("--yes needs --expect N, so that a script does not act on more than it has looked at; see --dry-run"))
	}
	return nil
}

// changed is what a command that changes several things has done, or would do.
type changed struct {
	version
	DryRun  bool   `json:"dry_run"`
	Match   int    `json:"match"`
	Changed int    `json:"changed"`
	Action  string `json:"action,omitempty"`
}

// agree decides whether the command goes on; match is how many things it would change. It compares --expect, ends a dry
// run, prints warning, and asks the user to type word.
func (f *actFlags) agree(ctx context.Context, out *printer, match int, warning, word string) (goOn bool, err error) {
	switch {
	case f.expect >= 0 && match != f.expect:
		return false, refused("nothing was changed: %d match, %d are expected", match, f.expect)
	case f.dry:
		return false, out.object(changed{version: v1(), DryRun: true, Match: match},
			func() { out.printf("%d match\n", match) })
	case match == 0:
		return false, out.object(changed{version: v1()},
			func() { out.printf("nothing matches: nothing was changed\n") })
	case f.yes:
		return true, nil
	}
	out.notef("%s\n", warning)
	err = out.confirmCount(ctx, fmt.Sprintf("Type %s to go on: ", word), word, match)
	return err == nil, err
}
