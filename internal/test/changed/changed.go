package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// changed returns the packages of the workspace whose tests depend on a changed file.
func changed(ctx context.Context, since string) ([]string, error) {
	root, err := output(ctx, "", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	root = strings.TrimSpace(root)
	files, err := changedFiles(ctx, root, since)
	if err != nil {
		return nil, err
	}
	list, err := output(ctx, root, "go", "list", "-test", "-deps",
		"-json=ImportPath,Dir,ForTest,Deps,Standard,DepOnly", "github.com/txonce/txonce/...")
	if err != nil {
		return nil, err
	}
	packages, err := decode(list)
	if err != nil {
		return nil, err
	}
	return choose(packages, files, root), nil
}

// changedFiles returns absolute paths of the files that differ between the merge base of since and HEAD and the working
// tree, and of untracked files.
func changedFiles(ctx context.Context, root, since string) (files []string, err error) {
	base, err := output(ctx, root, "git", "merge-base", since, "HEAD")
	if err != nil {
		return nil, err
	}
	for _, args := range [][]string{
		{"diff", "--name-only", strings.TrimSpace(base)},
		{"ls-files", "--others", "--exclude-standard"},
	} {
		out, err := output(ctx, root, "git", args...)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(out) {
			files = append(files, filepath.Join(root, strings.TrimSpace(line)))
		}
	}
	return files, nil
}

// goPackage is what go list prints about a package or about its tests, which it calls "p.test".
type goPackage struct {
	ImportPath, Dir, ForTest string
	Deps                     []string
	Standard, DepOnly        bool
}

func decode(list string) (packages []goPackage, err error) {
	for d := json.NewDecoder(strings.NewReader(list)); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
}

// choose returns the packages whose tests depend on one of files. root is the repository's folder.
func choose(packages []goPackage, files []string, root string) []string {
	dirs := map[string]bool{}
	for _, p := range packages {
		dirs[p.Dir] = true
	}
	touched := map[string]bool{}
	var modules []string // whose every package counts as changed
	for _, file := range files {
		dir, concerned := packageOf(file, root, dirs)
		switch name := filepath.Base(file); {
		case filepath.Dir(file) == dir && (strings.HasPrefix(name, "go.") || name == "Makefile"):
			modules = append(modules, dir)
		case concerned:
			touched[dir] = true
		}
	}
	inModule := func(dir string) bool {
		return slices.ContainsFunc(modules, func(m string) bool { return dir == m || strings.HasPrefix(dir, m+"/") })
	}
	isTouched := map[string]bool{} // by import path without the " [p.test]" of a package that is compiled for a test
	for _, p := range packages {
		if (touched[p.Dir] || inModule(p.Dir)) && !p.Standard {
			isTouched[plain(p.ImportPath)] = true
		}
	}
	chosen := map[string]bool{}
	for _, p := range packages {
		tested, isTest := strings.CutSuffix(p.ImportPath, ".test")
		if !isTest || p.DepOnly {
			continue
		}
		depends := func(dep string) bool { return isTouched[plain(dep)] }
		if isTouched[tested] || slices.ContainsFunc(p.Deps, depends) {
			chosen[tested] = true
		}
	}
	names := make([]string, 0, len(chosen))
	for n := range chosen {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func plain(importPath string) string {
	path, _, _ := strings.Cut(importPath, " ")
	return path
}

// packageOf returns the folder of the package that a file belongs to: the file's folder or the nearest one above it
// with a package, because testdata and embedded files are below their package.
func packageOf(file, root string, dirs map[string]bool) (dir string, found bool) {
	for dir = filepath.Dir(file); ; dir = filepath.Dir(dir) {
		if dirs[dir] {
			return dir, true
		}
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); dir == root || err == nil {
			return dir, false
		}
	}
}

func output(ctx context.Context, dir, program string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}
