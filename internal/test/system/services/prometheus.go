//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// unpackPrometheus makes sure that there are prometheus and promtool, which the tests of adapters/telemetry/monitoring
// run: on PATH, or unpacked from Debian's package in the user's cache. The package is not installed, because its
// service would then run on this machine.
func unpackPrometheus(ctx context.Context) error {
	_, noServer := exec.LookPath("prometheus")
	_, noTool := exec.LookPath("promtool")
	if errors.Join(noServer, noTool) == nil {
		return nil
	}
	caches, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	dir := filepath.Join(caches, "txonce", "services", "prometheus")
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	// Unpack beside the final place and rename at the end, so that an interrupted run is not mistaken for a complete
	// one.
	temp, err := os.MkdirTemp(filepath.Dir(dir), "prometheus-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	if err := downloadPrometheus(ctx, temp); err != nil {
		return fmt.Errorf("prometheus and promtool are not on PATH, and cannot be fetched (%w); install Prometheus 2.42 or later", err)
	}
	packages, err := filepath.Glob(filepath.Join(temp, "prometheus_*.deb"))
	if err != nil || len(packages) != 1 {
		return fmt.Errorf("apt-get download prometheus left %d packages: %w", len(packages), err)
	}
	files := filepath.Join(temp, "files")
	if out, err := exec.CommandContext(ctx, "dpkg", "-x", packages[0], files).CombinedOutput(); err != nil {
		return fmt.Errorf("dpkg -x %s: %w: %s", packages[0], err, lastLine(out))
	}
	fmt.Fprintln(os.Stdout, "prometheus  unpacked in", dir)
	return os.Rename(files, dir)
}

// downloadPrometheus downloads the package into dir. Only updating apt's lists needs root, so it tries without that
// first.
func downloadPrometheus(ctx context.Context, dir string) error {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return err
	}
	return again(ctx, 5, 10*time.Second, func(try int) error {
		if try > 1 {
			asRoot, err := rootPrefix(ctx)
			if err != nil {
				return err
			}
			update := append(asRoot, "apt-get", "update", "-o", "Acquire::Retries=3")
			if out, err := exec.CommandContext(ctx, update[0], update[1:]...).CombinedOutput(); err != nil {
				return fmt.Errorf("apt-get update: %w: %s", err, lastLine(out))
			}
		}
		cmd := exec.CommandContext(ctx, "apt-get", "download", "-o", "Acquire::Retries=3", "prometheus")
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get download prometheus: %w: %s", err, lastLine(out))
		}
		return nil
	})
}
