package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// Workers end with their parent, however it ends.
func TestWorkersDieWithTheirParent(t *testing.T) {
	cmd, _ := command(t, "-messages", "3000")
	out := startDemo(t, cmd)
	out.await(t, "is killed (SIGKILL)")
	workers := children(t, cmd.Process.Pid)
	if len(workers) == 0 {
		t.Fatal("the demo has no children")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	eventually(t, func() bool { return !slices.ContainsFunc(workers, alive) }, func() string {
		return fmt.Sprintf("of the workers %v some live on", workers)
	})
}

func children(t *testing.T, pid int) (pids []string) {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks { // each thread lists the children that it has started
		list, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task.Name()))
		pids = append(pids, strings.Fields(string(list))...)
	}
	return pids
}

// alive is also false for a zombie.
func alive(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}
