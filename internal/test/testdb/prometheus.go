package testdb

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// PrometheusPrograms are paths.
type PrometheusPrograms struct{ Server, Promtool string }

// Prometheus returns Prometheus's programs: those on PATH, or those that make services-up has unpacked.
func Prometheus(t testing.TB) PrometheusPrograms {
	t.Helper()
	return PrometheusPrograms{prometheusProgram(t, "prometheus"), prometheusProgram(t, "promtool")}
}

func prometheusProgram(t testing.TB, name string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs Prometheus's programs; -short runs only what needs nothing but Go")
	}
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	caches, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(caches, "txonce", "services", "prometheus", "usr", "bin", name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("there is no %s on PATH, nor %s: run make services-up", name, path)
	}
	return path
}
