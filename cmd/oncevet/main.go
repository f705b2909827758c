// Command oncevet finds mistakes in txonce's handlers, see package oncecheck. It is a tool for go vet:
//
//	go install github.com/txonce/txonce/cmd/oncevet@latest
//	go vet -vettool=$(which oncevet) ./...
//
// With packages as arguments it calls go vet itself: oncevet ./... does the same.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis/unitchecker"

	"github.com/txonce/txonce/cmd/oncevet/oncecheck"
)

func main() {
	args := os.Args[1:]
	if slices.ContainsFunc(args, isPackage) {
		os.Exit(vet(args))
	}
	unitchecker.Main(oncecheck.Analyzers()...)
}

// isPackage tells package patterns from what go vet calls the program with: flags, "help" and a file *.cfg.
func isPackage(arg string) bool {
	return !strings.HasPrefix(arg, "-") && !strings.HasSuffix(arg, ".cfg") && arg != "help"
}

// vet calls go vet with this program as its tool.
func vet(args []string) int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "oncevet:", err)
		return 1
	}
	cmd := exec.Command("go", append([]string{"vet", "-vettool=" + self}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "oncevet:", err)
		return 1
	}
	return 0
}
