//go:build unix

package main

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// forMaven are the programs for fetching and running jars.
var forMaven = []program{{"java", "default-jre-headless"}, {"mvn", "maven"}}

// A need is a program, and what needs it.
type need struct {
	by string
	program
}

func needsOf(servers []server) (needs []need) {
	for _, s := range servers {
		for _, p := range s.Needs() {
			needs = append(needs, need{s.About().Name, p})
		}
	}
	return needs
}

// install installs all missing programs in one run of apt-get. Its error names all of them.
func install(ctx context.Context, needs []need) error {
	var programs, packages, wanting []string
	for _, n := range needs {
		if _, err := exec.LookPath(n.Name); err == nil {
			continue
		}
		wanting = append(wanting, n.by)
		if !slices.Contains(packages, n.Package) {
			programs, packages = append(programs, n.Name), append(packages, n.Package)
		}
	}
	if len(packages) == 0 {
		return nil
	}
	command := "apt-get install -y --no-install-recommends " + strings.Join(packages, " ")
	// Mirrors fail sometimes, and a machine that has just started may be running its own updates.
	const patient = " -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300"
	failed := func(why error) error {
		return fmt.Errorf("%s: %s missing and not installable from here (%w); install with: sudo %s",
			strings.Join(slices.Compact(wanting), ", "), strings.Join(programs, ", "), why, command)
	}
	asRoot, err := rootPrefix(ctx)
	if err != nil {
		return failed(err)
	}
	fmt.Fprintln(os.Stdout, "installing:", command)
	run := func(c string) error {
		words := append(slices.Clone(asRoot), strings.Fields(c+patient)...)
		if out, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput(); err != nil {
			return failed(fmt.Errorf("%s: %w: %s", c, err, lastLine(out)))
		}
		return nil
	}
	// apt-get update has no setting to wait for the lock of its lists.
	err = again(ctx, 30, 10*time.Second, func(int) error { return run("apt-get update") })
	if err != nil {
		return err
	}
	return run(command)
}

// again calls do up to times times, with pauses, until it succeeds.
func again(ctx context.Context, times int, pause time.Duration, do func(try int) error) error {
	for try := 1; ; try++ {
		err := do(try)
		if err == nil || try == times {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// rootPrefix returns the words before a command that run it as root without asking for a password.
func rootPrefix(ctx context.Context) ([]string, error) {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return nil, errors.New("there is no apt-get")
	}
	quiet := []string{"env", "DEBIAN_FRONTEND=noninteractive"}
	if os.Getuid() == 0 {
		return quiet, nil
	}
	if exec.CommandContext(ctx, "sudo", "-n", "true").Run() != nil {
		return nil, errors.New("not root, and sudo would ask for a password")
	}
	return append([]string{"sudo", "-n"}, quiet...), nil
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

// oneMaven lets only one Maven run at a time, because they must not share their repository on disk.
var oneMaven sync.Mutex

// fetchJars returns a folder with the jars of <name>.pom.xml. The folder is in the user's cache under a name that
// depends on the pom, so all checkouts share one download.
func fetchJars(ctx context.Context, name string) (string, error) {
	pom, err := poms.ReadFile(name + ".pom.xml")
	if err != nil {
		return "", err
	}
	caches, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	jars := filepath.Join(caches, "txonce", "services", fmt.Sprintf("%s-%08x", name, crc32.ChecksumIEEE(pom)))
	if _, err := os.Stat(jars); err == nil {
		return jars, nil
	}
	if err := os.MkdirAll(filepath.Dir(jars), 0o755); err != nil {
		return "", err
	}
	// Download beside the final place and rename at the end, so that an interrupted download is not mistaken for a
	// complete one.
	temp, err := os.MkdirTemp(filepath.Dir(jars), name+"-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp)
	pomFile, lib := filepath.Join(temp, "pom.xml"), filepath.Join(temp, "lib")
	if err := os.WriteFile(pomFile, pom, 0o644); err != nil {
		return "", err
	}
	oneMaven.Lock()
	defer oneMaven.Unlock()
	args := []string{
		"--batch-mode", "--quiet", "--file", pomFile,
		"org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies",
		"-DincludeScope=runtime", "-DoutputDirectory=" + lib, "-Dplatform=" + platform(),
	}
	err = again(ctx, 3, 10*time.Second, func(try int) error {
		if try == 2 {
			args = append(args, "--update-snapshots") // otherwise Maven remembers a failed download and does not retry
		}
		if out, err := exec.CommandContext(ctx, "mvn", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("mvn: %w\n%s", err, out)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return jars, os.Rename(lib, jars)
}

// platform is this machine's name in the jars with PostgreSQL's programs.
func platform() string {
	arch := runtime.GOARCH
	if arch == "arm64" {
		arch = "arm64v8"
	}
	return runtime.GOOS + "-" + arch
}

// extractOne extracts the one file whose name ends in suffix from a jar to the folder dir.
func extractOne(jar, suffix, dir string) (string, error) {
	r, err := zip.OpenReader(jar)
	if err != nil {
		return "", err
	}
	defer r.Close()
	for _, entry := range r.File {
		if !strings.HasSuffix(entry.Name, suffix) {
			continue
		}
		in, err := entry.Open()
		if err != nil {
			return "", err
		}
		defer in.Close()
		name := filepath.Join(dir, path.Base(entry.Name))
		out, err := os.Create(name)
		if err != nil {
			return "", err
		}
		_, err = io.Copy(out, in)
		return name, errors.Join(err, out.Close())
	}
	return "", fmt.Errorf("%s holds no %s", jar, suffix)
}
