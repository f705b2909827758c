// Command changed prints the packages of all modules whose tests depend on files that changed since another commit,
// including uncommitted files.
//
//	go test $(go run ./internal/test/changed) # since main
//	go run ./internal/test/changed -since HEAD~3
//
// A change of go.mod, go.sum or the Makefile counts for every package of its module and of modules within it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
)

func main() {
	since := flag.String("since", "main", "the commit to compare with")
	flag.Parse()
	packages, err := changed(context.Background(), *since)
	if err != nil {
		fmt.Fprintln(os.Stderr, "changed:", err)
		os.Exit(1)
	}
	for _, p := range packages {
		fmt.Fprintln(os.Stdout, p)
	}
}
