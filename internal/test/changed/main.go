// Command changed prints the packages of a module whose tests depend on files that changed since another commit, including
// uncommitted files.
//
//	go test $(go run ./internal/test/changed)                    # since main
//	go run ./internal/test/changed -since HEAD~3 -module bench   # a nested module
//
// A change of go.mod, go.sum, the Makefile, or a folder without a package counts for every package of its module.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
)

func main() {
	since := flag.String("since", "main", "the commit to compare with")
	module := flag.String("module", ".", "the module's folder")
	flag.Parse()
	packages, err := changed(context.Background(), *since, *module)
	if err != nil {
		fmt.Fprintln(os.Stderr, "changed:", err)
		os.Exit(1)
	}
	for _, p := range packages {
		fmt.Fprintln(os.Stdout, p)
	}
}
