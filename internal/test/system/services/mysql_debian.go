//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	mysqlPackage  = "mysql-server-core"
	mysqlSuite    = "sid" // no release of Debian has MySQL yet
	debianKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
)

// unpackMySQL returns a folder in the user's cache with Debian's package of MySQL and every package that it depends on,
// from the mirror that this machine's apt uses. Nothing is installed, because the libraries are newer than the
// machine's: the server runs with its own loader.
func unpackMySQL(ctx context.Context) (root string, err error) {
	caches, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(caches, "txonce", "services", "mysql")
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	for _, program := range []string{"apt-get", "apt-cache", "dpkg"} {
		if _, err := exec.LookPath(program); err != nil {
			return "", err
		}
	}
	mirrors, err := aptMirrors("/etc/apt")
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	// Unpack beside the final place and rename at the end, so that an interrupted run is not mistaken for a complete
	// one.
	temp, err := os.MkdirTemp(filepath.Dir(dir), "mysql-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp)
	failures := []error{fmt.Errorf("no mirror of apt's sources has %s in %s", mysqlPackage, mysqlSuite)}
	for i, mirror := range mirrors {
		root, err := downloadMySQL(ctx, filepath.Join(temp, fmt.Sprint(i)), mirror)
		if err == nil {
			return dir, os.Rename(root, dir)
		}
		failures = append(failures, err)
	}
	return "", errors.Join(failures...)
}

// downloadMySQL downloads the packages from a mirror to dir, and returns the folder into which it has unpacked them.
func downloadMySQL(ctx context.Context, dir, mirror string) (root string, err error) {
	packages, root := filepath.Join(dir, "packages"), filepath.Join(dir, "root")
	for _, folder := range []string{"lists/partial", "cache/archives/partial", "packages", "root"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			return "", err
		}
	}
	list := filepath.Join(dir, "sources.list")
	source := fmt.Sprintf("deb [signed-by=%s] %s %s main\n", debianKeyring, mirror, mysqlSuite)
	if err := os.WriteFile(list, []byte(source), 0o644); err != nil {
		return "", err
	}
	settings := []string{ // apart from the machine's own lists and packages
		"Dir::Etc::sourcelist=" + list, "Dir::Etc::sourceparts=-", "Dir::State::Lists=" + filepath.Join(dir, "lists"),
		"Dir::Cache=" + filepath.Join(dir, "cache"), "Dir::State::status=/dev/null", "Acquire::Languages=none",
		"Acquire::Retries=3",
		"Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
	}
	if os.Getuid() == 0 {
		settings = append(settings, "APT::Sandbox::User=root") // apt's own user could not write here
	}
	run := func(name string, args ...string) (string, error) {
		for _, s := range settings {
			args = append(args, "-o", s)
		}
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = packages
		var problems strings.Builder
		cmd.Stderr = &problems
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("%s %s: %w: %s", name, args[0], err, lastLine([]byte(problems.String())))
		}
		return string(out), nil
	}
	if _, err := run("apt-get", "update"); err != nil {
		return "", err
	}
	tree, err := run("apt-cache", "depends", "--recurse", "--important", mysqlPackage)
	if err != nil {
		return "", err
	}
	if _, err := run("apt-get", append([]string{"download"}, packageNames(tree)...)...); err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(packages, "*.deb"))
	if err != nil {
		return "", err
	}
	for _, file := range files {
		if out, err := exec.CommandContext(ctx, "dpkg", "-x", file, root).CombinedOutput(); err != nil {
			return "", fmt.Errorf("dpkg -x %s: %w: %s", file, err, lastLine(out))
		}
	}
	return root, nil
}

// packageNames returns the packages in the output of apt-cache depends. Perl is for the package's scripts, which do not
// run.
func packageNames(tree string) (names []string) {
	for line := range strings.Lines(tree) {
		name := strings.TrimSpace(line)
		if name != "" && name[0] != '<' && line[0] != ' ' && line[0] != '|' && !strings.Contains(name, "perl") &&
			!slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// aptMirrors returns the addresses in apt's sources below dir, in both of its formats, that may hold a Debian.
func aptMirrors(dir string) (mirrors []string, err error) {
	add := func(uri string, suites, components []string) {
		if slices.Contains(components, "main") && !strings.Contains(strings.Join(suites, " ")+uri, "security") &&
			!strings.HasPrefix(uri, "cdrom:") && !slices.Contains(mirrors, uri) {
			mirrors = append(mirrors, uri)
		}
	}
	for _, pattern := range []string{"sources.list", "sources.list.d/*.list", "sources.list.d/*.sources"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			if filepath.Ext(file) == ".list" {
				readList(string(text), add)
			} else {
				readSources(string(text), add)
			}
		}
	}
	return mirrors, nil
}

// readList reads lines such as: deb [arch=amd64 signed-by=/k.gpg] ADDRESS bookworm main.
func readList(text string, add func(uri string, suites, components []string)) {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if kind != "deb" {
			continue
		}
		if rest = strings.TrimSpace(rest); strings.HasPrefix(rest, "[") {
			_, rest, _ = strings.Cut(rest, "]")
		}
		if f := strings.Fields(rest); len(f) > 2 {
			add(f[0], f[1:2], f[2:])
		}
	}
}

// readSources reads paragraphs of fields. A line that begins with a space continues a field.
func readSources(text string, add func(uri string, suites, components []string)) {
	for paragraph := range strings.SplitSeq(withoutComments(text), "\n\n") {
		fields := map[string][]string{}
		var name string
		for line := range strings.Lines(paragraph) {
			value := line
			if line[0] != ' ' && line[0] != '\t' {
				name, value, _ = strings.Cut(line, ":")
				name = strings.ToLower(name)
			}
			fields[name] = append(fields[name], strings.Fields(value)...)
		}
		if slices.Contains(fields["types"], "deb") && !slices.Contains(fields["enabled"], "no") {
			for _, uri := range fields["uris"] {
				add(uri, fields["suites"], fields["components"])
			}
		}
	}
}

// withoutComments drops lines of comments, which do not end a paragraph, and the spaces of lines without text, which
// do.
func withoutComments(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "" {
			line = "\n"
		}
		if !strings.HasPrefix(line, "#") {
			b.WriteString(line)
		}
	}
	return b.String()
}
