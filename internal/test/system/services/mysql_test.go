//go:build unix

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Both formats of apt's sources name mirrors. Those of security updates, of other programs and of removed entries are
// left out.
func TestMirrorsOfAptsSources(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	write("sources.list", "# deb http://0.invalid/debian bookworm main\ndeb [arch=amd64 signed-by=/k.gpg] http://1.invalid/debian bookworm main contrib # ours\n"+
		"deb-src http://2.invalid/debian bookworm main\ndeb http://3.invalid/debian-security bookworm-security main\ndeb cdrom:[Debian]/ bookworm main\n")
	write("sources.list.d/docker.list", "deb http://4.invalid/linux/debian bookworm stable\n")
	write("sources.list.d/debian.sources", "Types: deb deb-src\n# http://5.invalid\nURIs: http://6.invalid/debian\n http://7.invalid/debian\nSuites: bookworm bookworm-updates\n"+
		"Components: main\n \t\nTypes: deb\nURIs: http://8.invalid/debian-security\nSuites: bookworm-security\nComponents: main\n\n"+
		"Enabled: no\nTypes: deb\nURIs: http://9.invalid/debian\nSuites: bookworm\nComponents: main\n")
	write("sources.list.d/old.list.disabled", "deb http://10.invalid/debian bookworm main\n")
	got, err := aptMirrors(dir)
	must(t, err)
	if diff := cmp.Diff([]string{"http://1.invalid/debian", "http://6.invalid/debian", "http://7.invalid/debian"},
		got); diff != "" {
		t.Error(diff)
	}
}

func TestNamesOfThePackagesToDownload(t *testing.T) {
	got := packageNames("mysql-server-core\n  Depends: libc6\n |Depends: perl\nlibc6\n  Depends: <virtual>\n<virtual>\nlibperl5.42\nperl\nlibc6\n")
	if diff := cmp.Diff([]string{"mysql-server-core", "libc6"}, got); diff != "" {
		t.Error(diff)
	}
}
