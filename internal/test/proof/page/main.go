// Command page prints docs/proof.md.
//
//	go run ./internal/test/proof/page > docs/proof.md
//	go run ./internal/test/proof/page -sentence # that of README.md
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/txonce/txonce/internal/test/proof"
)

func main() {
	sentence := flag.Bool("sentence", false, "print README's sentence instead")
	dir := flag.String("runs", "internal/test/proof/runs", "the `folder` with the runs")
	flag.Parse()
	if err := write(*dir, *sentence); err != nil {
		fmt.Fprintln(os.Stderr, "page:", err)
		os.Exit(1)
	}
}

func write(dir string, sentence bool) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return err
	}
	runs, err := proof.Read(files...)
	if err != nil {
		return err
	}
	text := proof.Page(runs)
	if sentence {
		text = proof.Sentence(runs) + "\n"
	}
	_, err = fmt.Fprint(os.Stdout, text)
	return err
}
