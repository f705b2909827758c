package proof

import (
	"os/exec"
	"strings"
)

// Commit returns the commit of the checkout that holds the working directory, with "-dirty" when files differ from it,
// and "unknown" when there is none.
func Commit() string {
	head, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	changed, err := exec.Command("git", "status", "--porcelain", "--", ":/*.go").Output()
	commit := strings.TrimSpace(string(head))
	if err != nil || len(changed) > 0 {
		commit += "-dirty"
	}
	return commit
}
