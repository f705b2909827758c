package proof

import (
	"os/exec"
	"strings"
)

// published is what a run itself writes, and what is written from it: it changes nothing of what runs.
var published = []string{":/", ":(exclude,top)internal/test/proof/runs", ":(exclude,top)docs/proof.md", ":(exclude,top)README.md"}

// Commit returns the commit of the checkout that holds the working directory, with "-dirty" when its files differ from
// the commit, and "unknown" when there is none. Files that publish runs may differ.
func Commit() string {
	head, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	changed, err := exec.Command("git", append([]string{"status", "--porcelain", "--"}, published...)...).Output()
	commit := strings.TrimSpace(string(head))
	if err != nil || len(changed) > 0 {
		commit += "-dirty"
	}
	return commit
}
