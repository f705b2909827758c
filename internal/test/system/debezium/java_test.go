package debezium_test

import (
	"context"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// program returns the path of a program that .ci/run installs.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("Debezium is written in Java: install it with: sudo apt-get install -y --no-install-recommends default-jdk-headless maven (%v)", err)
	}
	return path
}

// jars returns a folder with the jars of testdata/<name>/pom.xml.
func jars(t *testing.T, name string) string {
	t.Helper()
	pom := filepath.Join("testdata", name, "pom.xml")
	return cached(t, name, pom, func(lib string) {
		args := []string{
			"--batch-mode", "--quiet", "--file", pom,
			"org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies", "-DincludeScope=runtime",
			"-DoutputDirectory=" + lib,
		}
		for try := 1; ; try++ { // networks fail sometimes
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			out, err := exec.CommandContext(ctx, program(t, "mvn"), args...).CombinedOutput()
			cancel()
			if err == nil {
				return
			}
			if try == 3 {
				t.Fatalf("mvn: %v\n%s", err, out)
			}
			t.Logf("mvn: %v\n%s", err, out)
			if try == 1 {
				// otherwise Maven remembers a failed download and does not retry
				args = append(args, "--update-snapshots")
			}
			<-time.After(10 * time.Second)
		}
	})
}

// classes returns a folder with the compiled program testdata/<name>/<source>. lib has the jars it needs.
func classes(t *testing.T, name, source, lib string) string {
	t.Helper()
	source = filepath.Join("testdata", name, source)
	return cached(t, name+"-classes", source, func(dir string) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, program(t, "javac"), "-cp", filepath.Join(lib, "*"), "-d", dir,
			source).CombinedOutput()
		if err != nil {
			t.Fatalf("javac: %v\n%s", err, out)
		}
	})
}

// cached returns a folder in the user's cache that make has filled. Its name depends on the contents of the file
// source.
func cached(t *testing.T, name, source string, make func(dir string)) string {
	t.Helper()
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	caches, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(caches, "txonce", "interop", fmt.Sprintf("%s-%08x", name, crc32.ChecksumIEEE(text)))
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	temp, err := os.MkdirTemp(filepath.Dir(dir), name+"-") // renamed when complete
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(temp)
	filled := filepath.Join(temp, "filled")
	make(filled)
	if err := os.Rename(filled, dir); err != nil {
		if _, other := os.Stat(dir); other != nil { // no other process made it first
			t.Fatal(err)
		}
	}
	return dir
}
