//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// dockerAnswers reports whether the Docker daemon and the compose plugin are available; many machines have only the
// client.
func dockerAnswers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return exec.CommandContext(ctx, "docker", "info").Run() == nil &&
		exec.CommandContext(ctx, "docker", "compose", "version").Run() == nil
}

// startDocker starts a server with docker compose. Nothing is ever sent on its channel: the health check detects
// failures.
func startDocker(ctx context.Context, s server) (<-chan error, error) {
	dir, err := dirOf(s)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, dockerFile), nil, 0o644); err != nil {
		return nil, err
	}
	return nil, compose(ctx, "up", "--detach", s.About().Name)
}

// stopDocker removes the server's container and data if docker compose started it.
func stopDocker(ctx context.Context, s server, dir string) error {
	_, err := os.Stat(filepath.Join(dir, dockerFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return compose(ctx, "rm", "--stop", "--force", "--volumes", s.About().Name)
}

func compose(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "docker", append([]string{"compose"}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("docker compose %s: %w\n%s", args[0], err, out)
	}
	return nil
}
